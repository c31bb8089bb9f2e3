//! Transport parameters mean the same after writing and reading them again, in no more bytes.

#![no_main]

use anabranch_wire::Side;
use anabranch_wire::params::TransportParameters;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for sender in [Side::Client, Side::Server] {
        match TransportParameters::decode(bytes, sender) {
            Ok(params) => {
                let mut out = Vec::new();
                params.encode(&mut out, sender);
                assert!(out.len() <= bytes.len());
                assert_eq!(TransportParameters::decode(&out, sender), Ok(params));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
