#!/bin/sh
# A FlexVolume driver that mounts a tmpfs, and leaves `unmount` to whoever calls it where `unmount` beside it says so.
here=$(dirname "$0")
echo "$1" >> "$here/calls"
case $1 in
init) echo '{"status": "Success", "capabilities": {"attach": false}}' ;;
mount)
    mount -t tmpfs flex "$2"
    [ -e "$here/half" ] && echo '{"status": "Succ' && exit
    echo '{"status": "Success"}'
    ;;
unmount)
    [ -e "$here/unmount" ] && echo '{"status": "Not supported"}' && exit 1
    umount "$2" && echo '{"status": "Success"}'
    ;;
*) echo '{"status": "Not supported"}' && exit 1 ;;
esac
