"""Virtual machines by QEMU: its command line, its disk, its monitor."""
