//! Whether a program runs by itself, an ELF file that names no interpreter, and is stripped.

const NOT: &str = "not a 64-bit little-endian ELF file";

/// The program header that names the dynamic linker.
const PT_INTERP: u32 = 3;

/// The section header of a table of symbols.
const SHT_SYMTAB: u32 = 2;

/// Fails unless `file` is a program for 64-bit Linux, little-endian, that is linked statically and
/// has no symbols.
pub(super) fn check(file: &[u8]) -> Result<(), &'static str> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return Err(NOT);
    }
    // Where the headers start, how many bytes each has and how many there are: gABI, "ELF Header".
    if headers(file, [32, 54, 56], 0)?.contains(&PT_INTERP) {
        return Err("it is linked dynamically");
    }
    if headers(file, [40, 58, 60], 4)?.contains(&SHT_SYMTAB) {
        return Err("it has symbols, which a stripped program has not");
    }
    Ok(())
}

/// The types in a table of headers. The file's own header says at `[start, size, count]` where the
/// table is; in each of its headers, the type is at `kind`.
fn headers(
    file: &[u8],
    [start, size, count]: [u64; 3],
    kind: u64,
) -> Result<Vec<u32>, &'static str> {
    let start = number(file, start, 8).ok_or(NOT)?;
    let size = number(file, size, 2).ok_or(NOT)?;
    let count = number(file, count, 2).ok_or(NOT)?;
    let kind_of = |index: u64| {
        let at = index.checked_mul(size)?.checked_add(start)?;
        let kind = number(file, at.checked_add(kind)?, 4)?;
        u32::try_from(kind).ok()
    };
    (0..count).map(|index| kind_of(index).ok_or(NOT)).collect()
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

    /// A file with program headers and section headers of these types.
    fn file(programs: &[u32], sections: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = programs.len() as u8;
        for kind in programs {
            file.extend_from_slice(&kind.to_le_bytes());
            file.extend_from_slice(&[0; 52]);
        }
        let at = file.len() as u64;
        file[40..48].copy_from_slice(&at.to_le_bytes());
        file[58] = 64;
        file[60] = sections.len() as u8;
        for kind in sections {
            file.extend_from_slice(&[0; 4]);
            file.extend_from_slice(&kind.to_le_bytes());
            file.extend_from_slice(&[0; 56]);
        }
        file
    }

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        assert_eq!(check(&file(&[1, 1, 2], &[0, 1])), Ok(()));
        assert_eq!(
            check(&file(&[6, PT_INTERP, 1], &[])),
            Err("it is linked dynamically")
        );
        let own = std::fs::read("/proc/self/exe").expect("this test");
        assert_eq!(check(&own), Err("it is linked dynamically"));
    }

    #[test]
    fn a_program_with_symbols_is_not_stripped() {
        assert_eq!(
            check(&file(&[1], &[0, 1, SHT_SYMTAB, 3])),
            Err("it has symbols, which a stripped program has not")
        );
    }

    #[test]
    fn what_is_no_program_is_told_and_does_not_panic() {
        let whole = file(&[1, 2], &[0, 3]);
        for length in 0..whole.len() - 60 {
            assert!(check(&whole[..length]).is_err(), "{length}");
        }
        assert!(check(b"#!/bin/sh\n").is_err());
    }
}
