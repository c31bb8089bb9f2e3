//! Links between network namespaces, carried by a user-space emulator.
