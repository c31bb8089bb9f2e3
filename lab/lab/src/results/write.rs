//! Tables as text.

use super::schema::{Cell, Table};
use std::io::{self, Write};

/// Writes comma-separated values (RFC 4180) with a header line.
pub fn csv(table: &Table, out: &mut impl Write) -> io::Result<()> {
    let names: Vec<String> = table
        .columns
        .iter()
        .map(|column| escaped(&column.name))
        .collect();
    writeln!(out, "{}", names.join(","))?;
    for row in &table.rows {
        for (at, cell) in row.iter().enumerate() {
            if at > 0 {
                out.write_all(b",")?;
            }
            match cell {
                Cell::Text(text) => out.write_all(escaped(text).as_bytes())?,
                Cell::Whole(number) => write!(out, "{number}")?,
                Cell::Number(number) => write!(out, "{number}")?,
                Cell::Nothing => {}
            }
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes one JSON object per row.
pub fn json_lines(table: &Table, out: &mut impl Write) -> io::Result<()> {
    for row in &table.rows {
        let mut object = serde_json::Map::new();
        for (column, cell) in table.columns.iter().zip(row) {
            let value = match cell {
                Cell::Text(text) => text.as_str().into(),
                Cell::Whole(number) => (*number).into(),
                Cell::Number(number) => (*number).into(),
                Cell::Nothing => serde_json::Value::Null,
            };
            object.insert(column.name.clone(), value);
        }
        serde_json::to_writer(&mut *out, &object)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
