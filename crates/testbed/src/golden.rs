//! Golden files: reviewed texts that must not change unnoticed.

use std::fs;
use std::path::Path;

/// Compares `text` with the file `name` in the folder `golden` of a crate. With `BLESS=1` in the
/// environment, the file is first overwritten with `text`.
///
/// # Panics
/// Panics if text and file differ, or if the file cannot be written.
pub fn check(manifest_dir: &str, name: &str, text: &str) {
    let path = Path::new(manifest_dir).join("golden").join(name.to_lowercase());
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("just joined")).expect("the folder can be made");
        fs::write(&path, text).expect("the file can be written");
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text,
        golden,
        "{} differs; look at it, then BLESS=1 cargo test -p CRATE",
        path.display()
    );
}
