"""MQTT: readings from a broker, outputs to one.

Readings arrive on `PREFIX/<sequence>` as `{"time": ..., "value": ...}`, snapshots on `PREFIX` as `{"time": ...,
"values": ...}`. On the topic of one sequence, a snapshot or the name of another sequence is refused, so that a broker
can restrict writers to their own sequence. QoS 1 with a persistent session: a message is acknowledged once the runner
has it, and the broker repeats what was not. A repeated or retained reading is an ordinary one: late, or a duplicate.
"""

from __future__ import annotations

import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csdp.errors import CsdpError, InputError
from csdp.stream.messages import decode_message
from csdp.stream.sinks import encode_line
from csdp.stream.sources import Emit

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

#: Seconds that a delivery may still take after `stop` was set.
_STOP_LIMIT = 2.0
#: Seconds after which a silent connection is checked.
_KEEPALIVE = 30
#: Refusals of a broker that a retry does not change.
_FATAL = ("Bad user name or password", "Not authorized", "Client identifier not valid", "Unsupported protocol version")


class BrokerError(CsdpError):
    """A broker refuses the connection for a reason that a retry does not change."""


@dataclass(frozen=True)
class Broker:
    """Address and credentials of a broker. Its repr does not show the password.

    `tls`: encrypt, and check the broker's certificate against `ca_file` (or the system's authorities); `cert_file` and
    `key_file` are the client's certificate, where the broker asks for one.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    username: str | None = None
    password: str | None = None
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def __repr__(self) -> str:
        return f"Broker({self.host}:{self.port}{', TLS' if self.tls else ''})"

    def client(self, client_id: str, *, persistent: bool) -> Client:
        """A client that is not connected yet; if `persistent`, the session survives restarts and acks are explicit."""
        try:
            from paho.mqtt.client import Client, MQTTv311
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise InputError("mqtt needs the package paho-mqtt, version 2: pip install 'csdp[mqtt]'") from None
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=not persistent,
            protocol=MQTTv311,
            manual_ack=persistent,
        )
        client.reconnect_delay_set(min_delay=1, max_delay=30)
        if self.username is not None:
            client.username_pw_set(self.username, self.password)
        if self.tls:
            client.tls_set_context(self._tls_context())
        return client

    def _tls_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
            if self.cert_file is not None:
                context.load_cert_chain(str(self.cert_file), None if self.key_file is None else str(self.key_file))
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self.ca_file, self.cert_file, self.key_file) if file is not None)
            raise InputError(f"mqtt: the TLS files {files} cannot be used ({error.strerror or error})") from None
        return context


class BrokerConnection:
    """A client that connects in the background, and again when the connection is lost."""

    def __init__(self, broker: Broker, client_id: str, *, persistent: bool) -> None:
        self.client = broker.client(client_id, persistent=persistent)
        self.number = 0  #: of the current connection; an older one cannot acknowledge
        self.error: BrokerError | None = None
        self._broker = broker
        self._on_connected: Callable[[], object] | None = None
        self.state = "connecting"  #: for the status line; empty while connected
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_connect_fail = self._on_connect_fail

    def start(self, on_connected: Callable[[], object] | None = None) -> None:
        """Begin to connect; `on_connected` is called at every connection."""
        self._on_connected = on_connected
        self.client.connect_async(self._broker.host, self._broker.port, keepalive=_KEEPALIVE)
        self.client.loop_start()

    def stop(self) -> None:
        """Disconnect and end the thread."""
        self.client.disconnect()
        self.client.loop_stop()

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.state = f"{self._broker}: {reason}"
            if str(reason) in _FATAL:
                self.error = BrokerError(f"mqtt: {self._broker.host}:{self._broker.port} says {str(reason).lower()!r}")
            return
        self.number += 1
        self.state = ""
        if self._on_connected is not None:
            self._on_connected()

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not self.state:
            self.state = f"{self._broker}: connection lost, trying again"

    def _on_connect_fail(self, client: Any, userdata: Any) -> None:
        error = sys.exc_info()[1]
        self.state = f"{self._broker}: out of reach, trying again"
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message
            self.error = BrokerError(f"mqtt: the certificate of {self._broker.host} cannot be trusted: {why}")


class MqttSource:
    """Readings from a broker.

    Args:
        broker: the broker.
        topic: the prefix; `PREFIX/<sequence>` for readings, `PREFIX` for snapshots.
        client_id: names the persistent session; one for each stream, the same at every start.
    """

    def __init__(self, broker: Broker, *, topic: str, client_id: str) -> None:
        self._topic = check_topic(topic)
        if not client_id:
            raise InputError("mqtt: an empty client_id given; the persistent session needs a name")
        self._connection = BrokerConnection(broker, client_id, persistent=True)

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Emit what arrives until `stop` is set; connections that are lost come back by themselves."""
        connection = self._connection
        client = connection.client

        def on_message(_: Any, __: Any, message: MQTTMessage) -> None:
            number, mid, qos = connection.number, message.mid, message.qos

            def acknowledge() -> None:
                if number == connection.number:
                    client.ack(mid, qos)

            emit(decode_message(bytes(message.payload), sequence=self._sequence_of(message.topic)), acknowledge)

        client.on_message = on_message
        connection.start(lambda: client.subscribe(f"{self._topic}/#", qos=1))
        try:
            while not stop.wait(0.1):
                if connection.error is not None:
                    raise connection.error
        finally:
            connection.stop()

    def _sequence_of(self, topic: str) -> str | None:
        return topic.removeprefix(f"{self._topic}/") if topic != self._topic else None

    def state(self) -> str:
        """The state of the connection."""
        return self._connection.state


class MqttSink:
    """Outputs to a broker: one message each on `topic`, QoS 1, retained if asked, delivered once acknowledged."""

    def __init__(self, broker: Broker, *, topic: str, client_id: str, retain: bool = False) -> None:
        self._topic = check_topic(topic)
        self._retain = retain
        self._connection = BrokerConnection(broker, client_id, persistent=False)
        self._acknowledged: set[int] = set()
        self._changed = threading.Condition()
        self._started = False
        self._connection.client.on_publish = self._on_publish

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason: Any, properties: Any) -> None:
        with self._changed:
            self._acknowledged.add(mid)
            self._changed.notify_all()

    def deliver(self, output: dict[str, Any], stop: threading.Event) -> bool:
        """Publish one message and wait until the broker has it."""
        if not self._started:
            self._connection.start()
            self._started = True
        sent = self._connection.client.publish(self._topic, encode_line(output).rstrip(), qos=1, retain=self._retain)
        left = _STOP_LIMIT
        with self._changed:
            while sent.mid not in self._acknowledged:
                if self._connection.error is not None:
                    raise self._connection.error
                if stop.is_set():
                    left -= 0.1
                    if left <= 0:
                        return False
                self._changed.wait(0.1)
            self._acknowledged.discard(sent.mid)
        return True

    def newest(self) -> int | None:
        """None: a broker does not know who has read what."""
        return None

    def close(self) -> None:
        """Disconnect."""
        if self._started:
            self._started = False
            self._connection.stop()


def check_topic(topic: str) -> str:
    """Refuse a topic with wildcards, or with a slash at its ends."""
    if not topic or topic != topic.strip("/") or set(topic) & set("+#\0"):
        raise InputError(f"mqtt: topic {topic!r} given; a text without +, # and slashes at its ends")
    return topic
