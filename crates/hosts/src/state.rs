//! State folders (XDG Base Directory Specification 0.8) for data that later commands need: journals
//! of searches, and ids of the processes that keep the lab's namespaces alive.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{env, io};

use nix::unistd::{Uid, geteuid};

/// Name of this program's folder below the user's state folder.
const OURS: &str = "dns64bench";

/// Returns the folder for data that survives a reboot, and creates it if necessary:
/// `$XDG_STATE_HOME/dns64bench`, or `~/.local/state/dns64bench`.
///
/// # Errors
/// Returns an error if neither folder is writable.
pub fn state_folder() -> io::Result<PathBuf> {
    first_usable(&lasting_places(&|name| env::var_os(name)))
}

/// Returns the folder for data that is valid until the next reboot, and creates it if necessary.
/// The folder is the first usable folder among `$XDG_RUNTIME_DIR/dns64bench` (default:
/// `/run/user/UID/dns64bench`), [`state_folder`] and `/tmp/dns64bench-UID`.
///
/// # Errors
/// Returns an error if none of these folders is writable and belongs to the user.
pub(crate) fn runtime_folder() -> io::Result<PathBuf> {
    first_usable(&passing_places(geteuid(), &|name| env::var_os(name)))
}

/// Function that returns the value of an environment variable.
type Variable<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

fn lasting_places(variable: &Variable<'_>) -> Vec<PathBuf> {
    // According to the specification, relative paths are invalid and must be ignored.
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = folder("HOME").map(|home| home.join(".local/state"));
    folder("XDG_STATE_HOME").into_iter().chain(home).map(|path| path.join(OURS)).collect()
}

fn passing_places(user: Uid, variable: &Variable<'_>) -> Vec<PathBuf> {
    let given = variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = given.unwrap_or_else(|| Path::new("/run/user").join(user.to_string()));
    let mut places = vec![runtime.join(OURS)];
    places.extend(lasting_places(variable));
    places.push(env::temp_dir().join(format!("{OURS}-{user}")));
    places
}

/// Returns the first folder in the list that belongs to this user and that exists or can be created.
fn first_usable(places: &[PathBuf]) -> io::Result<PathBuf> {
    let mut why =
        io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME names a folder");
    for place in places {
        match own(place) {
            Ok(()) => return Ok(place.clone()),
            Err(error) => {
                why = io::Error::new(error.kind(), format!("{}: {error}", place.display()));
            }
        }
    }
    Err(why)
}

/// Creates a folder that only this user can read. Returns an error if the folder belongs to another
/// user or is not writable.
fn own(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // A link could lead into the folder of another user.
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    // A test file is created here, so that a missing permission is detected before the first write.
    tempfile::tempfile_in(folder).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables<'a>(all: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        move |name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    #[test]
    fn folders_are_those_of_the_specification() {
        let given =
            variables(&[("XDG_STATE_HOME", "/s"), ("XDG_RUNTIME_DIR", "/r"), ("HOME", "/h")]);
        assert_eq!(
            lasting_places(&given),
            ["/s/dns64bench", "/h/.local/state/dns64bench"].map(PathBuf::from)
        );
        let user = Uid::from_raw(7);
        assert_eq!(
            passing_places(user, &given)[..2],
            ["/r/dns64bench", "/s/dns64bench"].map(PathBuf::from)
        );
        assert_eq!(
            passing_places(user, &variables(&[]))[0],
            PathBuf::from("/run/user/7/dns64bench")
        );
        let relative = variables(&[("XDG_STATE_HOME", "s"), ("HOME", "/h")]);
        assert_eq!(lasting_places(&relative), [PathBuf::from("/h/.local/state/dns64bench")]);
        assert!(lasting_places(&variables(&[])).is_empty());
    }

    #[test]
    fn folders_of_other_users_and_links_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let [own, link, below] =
            ["own", "link", "link/below/x"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("/nonexistent", &link).unwrap();
        assert_eq!(first_usable(&[link.clone(), below, own.clone()]).unwrap(), own);
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        let foreign = [PathBuf::from("/proc"), link];
        assert!(first_usable(&foreign).is_err());
        assert!(first_usable(&[]).unwrap_err().to_string().contains("HOME"));
    }
}
