use super::*;
use crate::cursor::Reader;
#[test]
fn smoke() {
    let mut out = Vec::new();
    put_ack(&mut out, Form::Multipath, PathId(1), [0..=5].into_iter(), 9, 0, None, 99).unwrap();
    assert_eq!(out, [0x3e, 1, 5, 0, 0, 5]);
    let (_, f) = decode(&mut Reader::new(&out)).unwrap();
    let mut again = Vec::new();
    f.encode(&mut again, Form::Multipath);
    assert_eq!(out, again);
}
