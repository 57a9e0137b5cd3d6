//! Serialization of a list inside another JSON object, both as data and as text. The text is for readers. Programs read
//! back only the data and never decide by the text.

/// Defines a module for `#[serde(flatten, with = "…")]` on a `Vec` of a type with `Display`: `in_words!(Reason:
/// "reasons", "causes")` writes the sentences as `reasons` and the data as `causes`.
macro_rules! in_words {
    ($item:ident: $words:tt, $data:tt) => {
        #[doc = concat!("Serializes a list inside another object: `", $words, "` is the text for readers, `", $data, "` the data, which \
                         is read back. For `#[serde(flatten, with = \"…\")]`.")]
        pub mod in_words {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            use super::$item;

            /// Serialized form.
            #[derive(Serialize, schemars::JsonSchema)]
            pub struct Written<'a> {
                #[serde(rename = $words)]
                words: Vec<String>,
                #[serde(rename = $data)]
                data: &'a [$item],
            }

            #[derive(Deserialize)]
            struct Read {
                #[serde(rename = $data)]
                data: Vec<$item>,
            }

            /// Writes the text and the data.
            ///
            /// # Errors
            /// Returns any error from the serializer.
            pub fn serialize<S: Serializer>(data: &[$item], serializer: S) -> Result<S::Ok, S::Error> {
                Written { words: data.iter().map($item::to_string).collect(), data }.serialize(serializer)
            }

            /// Reads the data.
            ///
            /// # Errors
            /// Returns an error if the data is missing, as in results of versions that wrote text only.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<$item>, D::Error> {
                Ok(Read::deserialize(deserializer)?.data)
            }
        }
    };
}

pub(crate) use in_words;
