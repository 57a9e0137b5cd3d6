//! Serialization of a list inside a JSON object, both as data and as text. The text is for human readers. Programs read
//! back only the data, and make no decisions based on the text.

/// Defines a module that serializes a list both as text and as data, for use in `#[serde(flatten, with = "…")]`. The
/// items of the list must implement `Display`. For example, `in_words!(Reason: "reasons", "causes")` writes the text of
/// each reason into `reasons`, and the data of each reason into `causes`.
macro_rules! in_words {
    ($item:ident: $words:tt, $data:tt) => {
        #[doc = concat!("Serializes a list inside another object: `", $words, "` is the text for readers, `", $data, "` the data, which \
                         is read back. For `#[serde(flatten, with = \"…\")]`.")]
        pub mod in_words {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            use super::$item;

            /// Serialized form of the list: its text and its data.
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

            /// Writes the list as text and as data.
            ///
            /// # Errors
            /// Returns any error from the serializer.
            pub fn serialize<S: Serializer>(data: &[$item], serializer: S) -> Result<S::Ok, S::Error> {
                Written { words: data.iter().map($item::to_string).collect(), data }.serialize(serializer)
            }

            /// Reads the list from its data.
            ///
            /// # Errors
            /// Returns an error if the data is missing. This is the case in results of old versions, which wrote only
            /// the text.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<$item>, D::Error> {
                Ok(Read::deserialize(deserializer)?.data)
            }
        }
    };
}

pub(crate) use in_words;
