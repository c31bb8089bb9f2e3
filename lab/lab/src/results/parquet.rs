//! Tables as Parquet files.

use super::schema::{Cell, Kind, Table};
use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Rows of a row group.
const GROUP: usize = 1 << 17;

/// Writes `table` to a temporary name, then renames it to `path`.
pub(super) fn write(table: &Table, path: &Path) -> Result<(), String> {
    let partial = path.with_extension("parquet.new");
    let done = write_file(table, &partial).map_err(|error| error.to_string());
    done.and_then(|()| std::fs::rename(&partial, path).map_err(|error| error.to_string()))
}

fn write_file(table: &Table, path: &Path) -> Result<(), ParquetError> {
    let mut fields = Vec::new();
    for column in &table.columns {
        let physical = match column.kind {
            Kind::Text => Physical::BYTE_ARRAY,
            Kind::Whole => Physical::INT64,
            Kind::Number => Physical::DOUBLE,
        };
        let converted = match column.kind {
            Kind::Text => ConvertedType::UTF8,
            _ => ConvertedType::NONE,
        };
        let field = Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_converted_type(converted)
            .build()?;
        fields.push(Arc::new(field));
    }
    let schema = Type::group_type_builder(table.name)
        .with_fields(fields)
        .build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let file = File::create(path)?;
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    for rows in table.rows.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        for (at, column) in table.columns.iter().enumerate() {
            write_column(&mut group, column.kind, rows, at)?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn write_column(
    group: &mut SerializedRowGroupWriter<'_, File>,
    kind: Kind,
    rows: &[Vec<Cell>],
    at: usize,
) -> Result<(), ParquetError> {
    let Some(mut writer) = group.next_column()? else {
        return Ok(());
    };
    let cells = || rows.iter().map(|row| &row[at]);
    let levels: Vec<i16> = cells()
        .map(|cell| i16::from(*cell != Cell::Nothing))
        .collect();
    let levels = Some(levels.as_slice());
    match kind {
        Kind::Text => {
            let text = |cell: &Cell| match cell {
                Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                _ => None,
            };
            let values: Vec<ByteArray> = cells().filter_map(text).collect();
            writer
                .typed::<ByteArrayType>()
                .write_batch(&values, levels, None)?;
        }
        Kind::Whole => {
            let whole = |cell: &Cell| match cell {
                Cell::Whole(number) => Some(*number as i64),
                _ => None,
            };
            let values: Vec<i64> = cells().filter_map(whole).collect();
            writer
                .typed::<Int64Type>()
                .write_batch(&values, levels, None)?;
        }
        Kind::Number => {
            let number = |cell: &Cell| match cell {
                Cell::Number(number) => Some(*number),
                _ => None,
            };
            let values: Vec<f64> = cells().filter_map(number).collect();
            writer
                .typed::<DoubleType>()
                .write_batch(&values, levels, None)?;
        }
    }
    writer.close()
}
