//! Writer of Parquet files from columns of plain data.
//!
//! This is a separate crate, so that a change in the tester does not recompile the code generated
//! from Parquet's generic types.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

/// Values of one column of a row group.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Column of the Parquet type `REQUIRED INT32`.
    Int32(Vec<i32>),
    /// Column of the Parquet type `OPTIONAL INT32`.
    OptionalInt32(Vec<Option<i32>>),
    /// Column of the Parquet type `REQUIRED INT64`.
    Int64(Vec<i64>),
    /// Column of the Parquet type `OPTIONAL INT64`.
    OptionalInt64(Vec<Option<i64>>),
    /// Column of the Parquet type `REQUIRED BYTE_ARRAY (UTF8)`.
    Text(Vec<String>),
}

/// Writer of one Parquet file, compressed with Snappy.
pub struct Writer<'a>(SerializedFileWriter<&'a File>);

impl<'a> Writer<'a> {
    /// Starts a file. `schema` is a message type in Parquet's notation, with the types of
    /// [`Column`].
    ///
    /// # Errors
    /// Returns an error if the schema has a syntax error, or the file cannot be written.
    pub fn new(file: &'a File, schema: &str) -> io::Result<Writer<'a>> {
        let schema = parse_message_type(schema).map_err(io::Error::other)?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
            .map(Writer)
            .map_err(io::Error::other)
    }

    /// Writes a row group. `column` returns the values of a column. Its argument is the index of
    /// the column in the schema; the first column has the index 0. All columns must have the same
    /// number of values.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, or the number of values in a column differs
    /// from that in the first column.
    ///
    /// # Panics
    /// Panics if the type of a column differs from its type in the schema.
    pub fn write_row_group(&mut self, column: &dyn Fn(usize) -> Column) -> io::Result<()> {
        self.try_write(column).map_err(io::Error::other)
    }

    fn try_write(&mut self, column: &dyn Fn(usize) -> Column) -> Result<(), ParquetError> {
        let mut group = self.0.next_row_group()?;
        let mut position = 0;
        while let Some(writer) = group.next_column()? {
            match column(position) {
                Column::Int32(values) => write::<Int32Type>(writer, &values, None)?,
                Column::OptionalInt32(values) => write_optional::<Int32Type>(writer, values)?,
                Column::Int64(values) => write::<Int64Type>(writer, &values, None)?,
                Column::OptionalInt64(values) => write_optional::<Int64Type>(writer, values)?,
                Column::Text(values) => {
                    let values: Vec<ByteArray> =
                        values.into_iter().map(|text| text.into_bytes().into()).collect();
                    write::<ByteArrayType>(writer, &values, None)?;
                }
            }
            position += 1;
        }
        group.close().map(drop)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn close(self) -> io::Result<()> {
        self.0.close().map(drop).map_err(io::Error::other)
    }
}

fn write_optional<T: DataType>(
    writer: SerializedColumnWriter<'_>,
    values: Vec<Option<T::T>>,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|value| value.is_some().into()).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    write::<T>(writer, &values, Some(&levels))
}

/// Writes a column. `levels` contains 1 for a value and 0 for a null. It is `None` if the column
/// has no nulls.
fn write<T: DataType>(
    mut writer: SerializedColumnWriter<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    writer.typed::<T>().write_batch(values, levels, None)?;
    writer.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Row;

    const SCHEMA: &str = "message m { REQUIRED INT32 a; OPTIONAL INT32 b; REQUIRED INT64 c; \
        OPTIONAL INT64 d; REQUIRED BYTE_ARRAY e (UTF8); }";

    /// Returns a function that returns columns with these numbers. Optional columns have nulls in
    /// place of odd numbers.
    fn columns(numbers: std::ops::Range<i32>) -> impl Fn(usize) -> Column {
        move |position| {
            let numbers = numbers.clone();
            let even = |number: &i32| number % 2 == 0;
            match position {
                0 => Column::Int32(numbers.collect()),
                1 => Column::OptionalInt32(numbers.map(|n| Some(n).filter(even)).collect()),
                2 => Column::Int64(numbers.map(i64::from).collect()),
                3 => Column::OptionalInt64(
                    numbers.map(|n| Some(n).filter(even).map(i64::from)).collect(),
                ),
                _ => Column::Text(numbers.map(|n| n.to_string()).collect()),
            }
        }
    }

    #[test]
    fn values_are_read_back_with_types_and_nulls() {
        let file = tempfile::tempfile().unwrap();
        let mut writer = Writer::new(&file, SCHEMA).unwrap();
        writer.write_row_group(&columns(0..2)).unwrap();
        writer.write_row_group(&columns(2..3)).unwrap();
        writer.close().unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        assert_eq!(reader.num_row_groups(), 2);
        let rows: Vec<Row> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
        assert_eq!(
            rows,
            [
                r#"{a: 0, b: 0, c: 0, d: 0, e: "0"}"#,
                r#"{a: 1, b: null, c: 1, d: null, e: "1"}"#,
                r#"{a: 2, b: 2, c: 2, d: 2, e: "2"}"#,
            ]
        );
    }

    #[test]
    fn a_wrong_schema_and_uneven_columns_are_errors() {
        let file = tempfile::tempfile().unwrap();
        assert!(Writer::new(&file, "message {").is_err());
        let mut writer = Writer::new(&file, SCHEMA).unwrap();
        let uneven = |position| columns(0..if position == 2 { 1 } else { 2 })(position);
        assert!(writer.write_row_group(&uneven).is_err());
    }
}
