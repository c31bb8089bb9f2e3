//! Whether a program runs by itself: an ELF file that names no interpreter.

/// The program header that names the dynamic linker.
const PT_INTERP: u32 = 3;

/// Fails unless `file` is a program for 64-bit Linux, little-endian, that is linked statically.
pub(super) fn check_static(file: &[u8]) -> Result<(), &'static str> {
    const NOT: &str = "not a 64-bit little-endian ELF file";
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return Err(NOT);
    }
    let start = number(file, 32, 8).ok_or(NOT)?;
    let size = number(file, 54, 2).ok_or(NOT)?;
    let count = number(file, 56, 2).ok_or(NOT)?;
    for index in 0..count {
        let at = index.checked_mul(size).and_then(|at| at.checked_add(start));
        let kind = at.and_then(|at| number(file, at, 4)).ok_or(NOT)?;
        if kind == u64::from(PT_INTERP) {
            return Err("it is linked dynamically");
        }
    }
    Ok(())
}

/// A number of `length` bytes at `at`.
fn number(file: &[u8], at: u64, length: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = file.get(at..at.checked_add(length)?)?;
    let mut number = [0; 8];
    number[..length].copy_from_slice(bytes);
    Some(u64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with program headers of these kinds.
    fn file(kinds: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = kinds.len() as u8;
        for kind in kinds {
            file.extend_from_slice(&kind.to_le_bytes());
            file.extend_from_slice(&[0; 52]);
        }
        file
    }

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        assert_eq!(check_static(&file(&[1, 1, 2])), Ok(()));
        assert_eq!(
            check_static(&file(&[6, PT_INTERP, 1])),
            Err("it is linked dynamically")
        );
        let own = std::fs::read("/proc/self/exe").expect("this test");
        assert_eq!(check_static(&own), Err("it is linked dynamically"));
    }

    #[test]
    fn what_is_no_program_is_told_and_does_not_panic() {
        let whole = file(&[1, 2]);
        for length in 0..whole.len() - 52 {
            assert!(check_static(&whole[..length]).is_err(), "{length}");
        }
        assert!(check_static(b"#!/bin/sh\n").is_err());
    }
}
