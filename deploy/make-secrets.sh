#!/bin/sh
# Makes the secrets of compose.yaml: random passwords in deploy/secrets, which git ignores. None is shown, none is an
# argument of a command. Needs openssl, and mosquitto_passwd of the package mosquitto; as root, because the service runs
# as user 10001 in its container and only that user may read its files.
set -eu
umask 077
folder="${1:-$(dirname "$0")/secrets}"
if [ -e "$folder" ]; then
    echo "$folder is there already; remove it to make new secrets" >&2
    exit 1
fi
mkdir -p "$folder"
openssl rand -hex 24 > "$folder/db-password"
openssl rand -hex 24 > "$folder/mqtt-password"
{ printf 'db:5432:csdp:csdp:'; cat "$folder/db-password"; } > "$folder/pgpass"
{ printf 'csdp:'; cat "$folder/mqtt-password"; } > "$folder/mqtt-passwords"
mosquitto_passwd -U "$folder/mqtt-passwords"
if [ "$(id -u)" = 0 ]; then
    chown 10001 "$folder/pgpass" "$folder/mqtt-password"
    chown 1883 "$folder/mqtt-passwords"
fi
