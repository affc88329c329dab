#!/bin/sh
# A FlexVolume driver that mounts a tmpfs, and leaves to whoever calls it what files beside it name: `unmount`, or with
# `attach`, by which it attaches volumes, `mountdevice`. Then it mounts devices only, and `device` names the last one.
here=$(dirname "$0")
echo "$1" >> "$here/calls"
[ "$1" != attach ] && [ -e "$here/$1" ] && echo '{"status": "Not supported"}' && exit 1
[ -e "$here/attach" ] && attach=true || attach=false
case $attach-$1 in
*-init) echo '{"status": "Success", "capabilities": {"attach": '$attach'}}' ;;
true-attach) echo '{"status": "Success", "device": "/dev/flex"}' ;;
true-detach) echo '{"status": "Success"}' ;;
true-mountdevice | false-mount)
    echo "$3" > "$here/device"
    mount -t tmpfs flex "$2"
    [ -e "$here/half" ] && echo '{"status": "Succ' && exit
    echo '{"status": "Success"}'
    ;;
true-unmountdevice | false-unmount) umount "$2" && echo '{"status": "Success"}' ;;
*) echo '{"status": "Not supported"}' && exit 1 ;;
esac
