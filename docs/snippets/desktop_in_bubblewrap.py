from greenroom import XvfbComputer

IN_BUBBLEWRAP = """
exec bwrap --unshare-all --die-with-parent --new-session --proc /proc --dev /dev --tmpfs /tmp \\
    --ro-bind /usr /usr --ro-bind /etc /etc \\
    --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \\
    --bind "$HOME" "$HOME" --ro-bind "$XAUTHORITY" "$XAUTHORITY" --ro-bind /tmp/.X11-unix /tmp/.X11-unix \\
    --chdir "$HOME" mousepad notes.txt
"""

computer = XvfbComputer(command=["sh", "-c", IN_BUBBLEWRAP])
