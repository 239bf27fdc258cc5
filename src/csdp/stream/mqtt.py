"""MQTT: readings from a broker, outputs to one.

Readings arrive on `PREFIX/<sequence>` as `{"time": ..., "value": ...}`, snapshots on `PREFIX` as `{"time": ...,
"values": ...}`. Who may write on the topic of one sequence writes about that one alone: a snapshot there, or the name
of another sequence, is refused. QoS 1 with a lasting session: a message is acknowledged once the runner has it, and the
broker sends again what was not. A repeated or retained reading is an ordinary one: late, or a duplicate.
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

#: Seconds that an output may still take after a stop was asked for.
_LAST_WORDS = 2.0
#: Answers of a broker that waiting does not change.
_FATAL = ("Bad user name or password", "Not authorized", "Client identifier not valid", "Unsupported protocol version")


class BrokerError(CsdpError):
    """A broker refuses us for a reason that waiting does not change."""


@dataclass(frozen=True)
class Broker:
    """Where a broker is and how it knows us. The password is kept out of sight.

    `tls`: encrypt, and check the broker's certificate against `ca_file` (or the system's authorities); `cert_file` and
    `key_file` are our own certificate where the broker asks for one.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    username: str | None = None
    password: str | None = None
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    keepalive: int = 30

    def __repr__(self) -> str:
        return f"Broker({self.host}:{self.port}{', TLS' if self.tls else ''})"

    def client(self, client_id: str, *, lasting: bool) -> Client:
        """A client that is not connected yet; `lasting` keeps its session over restarts and acknowledges by hand."""
        try:
            from paho.mqtt.client import Client, MQTTv311
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise InputError("mqtt needs the package paho-mqtt, version 2: pip install 'csdp[mqtt]'") from None
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=not lasting,
            protocol=MQTTv311,
            manual_ack=lasting,
        )
        client.reconnect_delay_set(min_delay=1, max_delay=30)
        if self.username is not None:
            client.username_pw_set(self.username, self.password)
        if self.tls:
            client.tls_set_context(self._context())
        return client

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
            if self.cert_file is not None:
                context.load_cert_chain(str(self.cert_file), None if self.key_file is None else str(self.key_file))
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self.ca_file, self.cert_file, self.key_file) if file is not None)
            raise InputError(f"mqtt: the TLS files {files} cannot be used ({error.strerror or error})") from None
        return context


class BrokerConnection:
    """A client that connects in the background, again and again, and says how it is doing."""

    def __init__(self, broker: Broker, client_id: str, *, lasting: bool) -> None:
        self.client = broker.client(client_id, lasting=lasting)
        self.number = 0  #: of the present connection; acknowledgements of an older one mean nothing
        self.error: BrokerError | None = None
        self._broker = broker
        self._on_connected: Callable[[], None] | None = None
        self._words = "connecting"
        self.client.on_connect = self._connected
        self.client.on_disconnect = self._disconnected
        self.client.on_connect_fail = self._failed

    def start(self, on_connected: Callable[[], None] | None = None) -> None:
        """Begin to connect; `on_connected` is called at every connection."""
        self._on_connected = on_connected
        self.client.connect_async(self._broker.host, self._broker.port, keepalive=self._broker.keepalive)
        self.client.loop_start()

    def stop(self) -> None:
        """Say good-bye and end the thread."""
        self.client.disconnect()
        self.client.loop_stop()

    def words(self) -> str:
        """How the connection is, for the status line."""
        return self._words

    def _connected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._words = f"{self._broker}: {reason}"
            if str(reason) in _FATAL:
                self.error = BrokerError(f"mqtt: {self._broker.host}:{self._broker.port} says {str(reason).lower()!r}")
            return
        self.number += 1
        self._words = ""
        if self._on_connected is not None:
            self._on_connected()

    def _disconnected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not self._words:
            self._words = f"{self._broker}: connection lost, trying again"

    def _failed(self, client: Any, userdata: Any) -> None:
        error = sys.exc_info()[1]
        self._words = f"{self._broker}: out of reach, trying again"
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message
            self.error = BrokerError(f"mqtt: the certificate of {self._broker.host} cannot be trusted: {why}")


class MqttSource:
    """Readings from a broker.

    Args:
        broker: where. topic: the prefix; `PREFIX/<sequence>` for readings, `PREFIX` for snapshots.
        client_id: names the lasting session; one for each stream, the same at every start.
    """

    def __init__(self, broker: Broker, *, topic: str, client_id: str) -> None:
        self._topic = check_topic(topic)
        if not client_id:
            raise InputError("mqtt: an empty client_id given; the lasting session needs a name")
        self._connection = BrokerConnection(broker, client_id, lasting=True)

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Emit what arrives until `stop` is set; connections that are lost come back by themselves."""
        connection = self._connection
        client = connection.client

        def arrived(_: Any, __: Any, message: MQTTMessage) -> None:
            number, mid, qos = connection.number, message.mid, message.qos

            def accepted() -> None:
                if number == connection.number:
                    client.ack(mid, qos)

            emit(decode_message(bytes(message.payload), sequence=self._sequence(message.topic)), accepted)

        def connected() -> None:
            client.subscribe(f"{self._topic}/#", qos=1)

        client.on_message = arrived
        connection.start(connected)
        try:
            while not stop.wait(0.1):
                if connection.error is not None:
                    raise connection.error
        finally:
            connection.stop()

    def _sequence(self, topic: str) -> str | None:
        return topic.removeprefix(f"{self._topic}/") if topic != self._topic else None

    def state(self) -> str:
        """How the connection is."""
        return self._connection.words()


class MqttSink:
    """Outputs to a broker: one message each on `topic`, QoS 1, retained if asked, taken when the broker says so."""

    def __init__(self, broker: Broker, *, topic: str, client_id: str, retain: bool = False) -> None:
        self._topic = check_topic(topic)
        self._retain = retain
        self._connection = BrokerConnection(broker, client_id, lasting=False)
        self._taken: set[int] = set()
        self._changed = threading.Condition()
        self._started = False
        self._connection.client.on_publish = self._published

    def _published(self, client: Any, userdata: Any, mid: int, reason: Any, properties: Any) -> None:
        with self._changed:
            self._taken.add(mid)
            self._changed.notify_all()

    def deliver(self, output: dict[str, Any], stop: threading.Event) -> bool:
        """Publish one message and wait until the broker has it."""
        if not self._started:
            self._connection.start()
            self._started = True
        sent = self._connection.client.publish(self._topic, encode_line(output).rstrip(), qos=1, retain=self._retain)
        left = _LAST_WORDS
        with self._changed:
            while sent.mid not in self._taken:
                if self._connection.error is not None:
                    raise self._connection.error
                if stop.is_set():
                    left -= 0.1
                    if left <= 0:
                        return False
                self._changed.wait(0.1)
            self._taken.discard(sent.mid)
        return True

    def newest(self) -> int | None:
        """A broker does not tell who has read what."""
        return None

    def close(self) -> None:
        """Say good-bye."""
        if self._started:
            self._started = False
            self._connection.stop()


def check_topic(topic: str) -> str:
    """A topic without wildcards, and without a slash at its ends."""
    if not topic or topic != topic.strip("/") or set(topic) & set("+#\0"):
        raise InputError(f"mqtt: topic {topic!r} given; a text without +, # and slashes at its ends")
    return topic
