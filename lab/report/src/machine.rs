//! Turns the facts of `machine.json` into words.

use serde_json::{Map, Value};

/// The most important facts, in this order, with their names for readers.
const FIRST: [(&str, &str); 8] = [
    ("kernel", "kernel"),
    ("cpu", "processor"),
    ("cores", "cores"),
    ("memory_bytes", "memory"),
    ("load", "load before the first run"),
    ("vm", "instructions executed by"),
    ("version", "version"),
    ("binary_hash", "build"),
];

/// The machine that an inner object describes, by the object's name.
const WHOSE: [(&str, &str); 5] = [
    ("host", "machine around: "),
    ("machine", ""),
    ("peer", "peer: "),
    ("programs", ""),
    ("variables", ""),
];

type Facts = Vec<(String, String)>;

/// All facts, with names for readers.
pub(crate) fn facts(machine: &Map<String, Value>) -> Facts {
    let mut facts = Facts::new();
    describe("", machine, &mut facts);
    facts
}

fn describe(whose: &str, object: &Map<String, Value>, facts: &mut Facts) {
    for (key, name) in FIRST {
        let value = object.get(key).filter(|value| !value.is_null());
        facts.extend(value.map(|value| (format!("{whose}{name}"), told(key, value))));
    }
    let rest = object.iter().filter(|(key, value)| {
        let known = FIRST.iter().any(|(first, _)| first == key);
        !known && !value.is_null()
    });
    for (key, value) in rest {
        let inner = WHOSE.iter().find(|(name, _)| name == key);
        let inner = inner.map_or_else(|| format!("{key}: "), |(_, text)| (*text).to_owned());
        match (value, pairs(value)) {
            (Value::Object(object), _) => describe(&format!("{whose}{inner}"), object, facts),
            (_, Some(pairs)) => {
                let named = |(name, value)| (format!("{whose}{inner}{name}"), value);
                facts.extend(pairs.into_iter().map(named));
            }
            _ => facts.push((format!("{whose}{key}"), told(key, value))),
        }
    }
}

/// A list of names with their values; `None` if it is something else.
fn pairs(value: &Value) -> Option<Facts> {
    let list = value.as_array()?;
    let pair = |item: &Value| match item.as_array()?.as_slice() {
        [Value::String(name), Value::String(value)] => Some((name.clone(), value.clone())),
        _ => None,
    };
    list.iter().map(pair).collect()
}

fn told(key: &str, value: &Value) -> String {
    match (key, value) {
        ("memory_bytes", Value::Number(bytes)) => {
            let gibibytes = bytes.as_f64().unwrap_or_default() / f64::from(1 << 30);
            format!("{gibibytes:.1} GiB")
        }
        (_, Value::String(text)) => text.clone(),
        (_, Value::Array(list)) => {
            let items: Vec<String> = list.iter().map(|item| told("", item)).collect();
            items.join("; ")
        }
        (_, Value::Object(object)) => {
            let parts = object.iter().map(|(key, value)| (key, told(key, value)));
            let parts: Vec<String> = parts.map(|(key, value)| format!("{key} {value}")).collect();
            parts.join(", ")
        }
        (_, other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_in_words_and_nothing_of_it_is_left_out() {
        let machine = serde_json::json!({
            "backend": "host",
            "binary_hash": "abc",
            "cores": 2,
            "kernel": "6.1",
            "load": 0.25,
            "memory_bytes": 4u64 << 30,
            "programs": [["ip", "ip utility"]],
            "variables": [["net/mptcp/enabled", "1"], ["net/ipv4/tcp_sack", "0"]],
            "host": { "cpu": "a processor", "variables": [] },
            "peer": {
                "machine": { "kernel": "6.6" },
                "paths": [{ "interface": "eth0", "path": "dsl" }],
            },
            "vm": null,
        });
        let facts = facts(machine.as_object().unwrap());
        let expected = [
            ("kernel", "6.1"),
            ("cores", "2"),
            ("memory", "4.0 GiB"),
            ("load before the first run", "0.25"),
            ("build", "abc"),
            ("backend", "host"),
            ("machine around: processor", "a processor"),
            ("peer: kernel", "6.6"),
            ("peer: paths", "interface eth0, path dsl"),
            ("ip", "ip utility"),
            ("net/mptcp/enabled", "1"),
            ("net/ipv4/tcp_sack", "0"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(facts, expected);
    }
}
