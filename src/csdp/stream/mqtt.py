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
from typing import TYPE_CHECKING, Any

from csdp.errors import CsdpError, InputError
from csdp.stream.messages import decode_message
from csdp.stream.sinks import encode_line
from csdp.stream.sources import Emit

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

    from csdp.stream.spec import MqttSinkPlace, MqttSourcePlace

#: Seconds that a delivery may still take after `stop` was set.
_STOP_LIMIT = 2.0
#: Seconds after which a silent connection is checked.
_KEEPALIVE = 30
#: Refusals of a broker that a retry does not change.
_FATAL = ("Bad user name or password", "Not authorized", "Client identifier not valid", "Unsupported protocol version")


class BrokerError(CsdpError):
    """A broker refuses the connection for a reason that a retry does not change."""


def make_client(place: MqttSourcePlace, client_id: str, *, persistent: bool) -> Client:
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
    try:
        if place.username is not None:
            secret = place.password_file
            password = None if secret is None else secret.read_text(encoding="utf-8").rstrip("\r\n")
            client.username_pw_set(place.username, password)
        if place.tls:
            context = ssl.create_default_context(cafile=place.ca_file)
            if place.cert_file is not None:
                context.load_cert_chain(place.cert_file, place.key_file)
            client.tls_set_context(context)
    except (OSError, UnicodeDecodeError) as error:  # SSLError is an OSError
        names = "password_file, ca_file, cert_file or key_file"
        raise InputError(f"mqtt: {names} cannot be used ({type(error).__name__})") from None
    return client


class BrokerConnection:
    """A client that connects in the background, and again when the connection is lost."""

    def __init__(self, place: MqttSourcePlace, client_id: str, *, persistent: bool) -> None:
        self.client = make_client(place, client_id, persistent=persistent)
        self.number = 0  #: of the current connection; an older one cannot acknowledge
        self.error: BrokerError | None = None
        self._host = place.host
        self._port = place.port or (8883 if place.tls else 1883)
        self._name = f"mqtt: {self._host}:{self._port}"
        self._on_connected: Callable[[], object] | None = None
        self.state = "connecting"  #: for the status line; empty while connected
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_connect_fail = self._on_connect_fail

    def start(self, on_connected: Callable[[], object] | None = None) -> None:
        """Begin to connect; `on_connected` is called at every connection."""
        self._on_connected = on_connected
        self.client.connect_async(self._host, self._port, keepalive=_KEEPALIVE)
        self.client.loop_start()

    def stop(self) -> None:
        """Disconnect and end the thread."""
        self.client.disconnect()
        self.client.loop_stop()

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.state = f"{self._name}: {reason}"
            if str(reason) in _FATAL:
                self.error = BrokerError(f"{self._name} says {str(reason).lower()!r}")
            return
        self.number += 1
        self.state = ""
        if self._on_connected is not None:
            self._on_connected()

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not self.state:
            self.state = f"{self._name}: connection lost, trying again"

    def _on_connect_fail(self, client: Any, userdata: Any) -> None:
        error = sys.exc_info()[1]
        self.state = f"{self._name}: out of reach, trying again"
        if isinstance(error, ssl.SSLCertVerificationError):
            self.error = BrokerError(f"{self._name}: its certificate cannot be trusted: {error.verify_message}")


class MqttSource:
    """Readings from a broker: `TOPIC/<sequence>` for readings, `TOPIC` for snapshots.

    `client_id` names the persistent session: one for each stream, the same at every start.
    """

    def __init__(self, place: MqttSourcePlace, *, client_id: str) -> None:
        self._topic = place.topic
        self._connection = BrokerConnection(place, client_id, persistent=True)

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

    def __init__(self, place: MqttSinkPlace, *, client_id: str) -> None:
        self._topic = place.topic
        self._retain = place.retain
        self._connection = BrokerConnection(place, client_id, persistent=False)
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
