//! Names with parameters, as users type them.
