//! The signed zones: their records, their keys, and the signers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::super::harness::LIMIT;
use crate::process::output;

/// A signed zone with a signed child and an unsigned child.
const PARENT: &str = "\
$ORIGIN signed.test.
$TTL 300
@ SOA ns hostmaster 1 3600 900 604800 60
@ NS ns
ns A 127.0.0.1
www A 192.0.2.1
both A 192.0.2.2
both AAAA 2001:db8::2
*.w A 192.0.2.3
e.w A 192.0.2.8
a.ent A 192.0.2.4
alias CNAME www
alias-wild CNAME x.w
alias-child CNAME www.child
alias-plain CNAME www.plain
alias-none CNAME missing
dname DNAME child
mail MX 10 www
child NS ns.child
ns.child A 127.0.0.1
plain NS ns.plain
ns.plain A 127.0.0.1
";
/// Records of both children, without an origin.
pub(super) const CHILD: &str = "\
$TTL 300
@ SOA ns hostmaster 1 3600 900 604800 60
@ NS ns
ns A 127.0.0.1
www A 192.0.2.5
";
const PARENT_NAME: &str = "signed.test";
const CHILD_NAME: &str = "child.signed.test";
/// Difference between the current time and the time of signatures that are not valid now, in seconds.
const FAR: u64 = 60 * 86_400;
const WEEK: u64 = 7 * 86_400;

/// Lines of the two signed zone files, in full form: owner, TTL, class, type, data.
#[derive(Clone, Default)]
pub(super) struct Zones {
    pub(super) parent: Vec<String>,
    pub(super) child: Vec<String>,
}

/// Program that signs zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// dnssec-signzone.
    Bind,
    /// ldns-signzone.
    Ldns,
    /// kzonesign.
    Knot,
}

/// Records that deny names and types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    Nsec,
    Nsec3 {
        iterations: u16,
    },
    OptOut {
        iterations: u16,
    },
    /// NSEC3 with a salt of 255 octets.
    LongSalt {
        iterations: u16,
    },
}

/// Time at which signatures are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    Now,
    Past,
    Future,
}

/// Keys of both zones: files in the format of BIND, without their extension. The first key of each zone signs the keys.
#[derive(Clone)]
pub(super) struct Keys {
    folder: PathBuf,
    parent: [String; 2],
    child: [String; 2],
}

impl Keys {
    /// Generates keys in a folder.
    pub(super) fn generate(folder: &Path) -> Result<Keys> {
        Ok(Keys {
            folder: folder.to_owned(),
            parent: key_pair(folder, PARENT_NAME, "ECDSAP256SHA256")?,
            child: key_pair(folder, CHILD_NAME, "ED25519")?,
        })
    }

    /// Returns the DS record of the parent's key, as a trust anchor.
    pub(super) fn anchor(&self) -> Result<String> {
        ds(&self.parent[0], "-2")
    }

    /// Copies a key of the child with other flags, and uses the copy instead of the key.
    fn change_flags(&mut self, index: usize, from: &str, to: &str) -> Result<()> {
        let old = &self.child[index];
        let new =
            self.folder.join(format!("{}-{to}", file_name(old))).to_string_lossy().into_owned();
        let key = fs::read_to_string(format!("{old}.key"))?;
        let (from, to) = (format!(" DNSKEY {from} "), format!(" DNSKEY {to} "));
        fs::write(format!("{new}.key"), key.replacen(&from, &to, 1))?;
        fs::copy(format!("{old}.private"), format!("{new}.private"))?;
        self.child[index] = new;
        Ok(())
    }
}

/// Zones that are signed in a way of their own, and the keys for that.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) parent: String,
    pub(super) child: String,
    /// DS records of the child: options of dnssec-dsfromkey, and replacements in the result.
    pub(super) ds: Vec<(&'static str, Vec<(&'static str, &'static str)>)>,
    pub(super) denial: Denial,
    pub(super) parent_validity: Validity,
    pub(super) child_validity: Validity,
    /// Flags of the key of the child with this index: the usual ones, and those to use. Only ldns-signzone signs with any
    /// flags.
    pub(super) flags: Option<(usize, &'static str, &'static str)>,
}

impl Plan {
    /// Returns the plan of zones that are valid.
    pub(super) fn new(denial: Denial) -> Plan {
        Plan {
            parent: PARENT.into(),
            child: CHILD.into(),
            ds: vec![("-2", Vec::new())],
            denial,
            parent_validity: Validity::Now,
            child_validity: Validity::Now,
            flags: None,
        }
    }

    /// Signs the zones in a new folder.
    pub(super) fn sign(&self, signer: Signer, keys: &Keys, folder: &Path) -> Result<Zones> {
        fs::create_dir(folder).with_context(|| folder.display().to_string())?;
        let (mut keys, mut child_signer) = (keys.clone(), signer);
        if let Some((index, from, to)) = self.flags {
            keys.change_flags(index, from, to)?;
            child_signer = Signer::Ldns;
        }
        let mut parent = self.parent.clone();
        for (option, changes) in &self.ds {
            let ds = ds(&keys.child[0], option)?;
            let change = |ds: String, (from, to): &(&str, &str)| ds.replacen(from, to, 1);
            parent += &changes.iter().fold(ds, change);
        }
        let child = Job { name: CHILD_NAME, text: &self.child, keys: &keys.child, folder };
        let parent = Job { name: PARENT_NAME, text: &parent, keys: &keys.parent, folder };
        Ok(Zones {
            child: child.sign(child_signer, self.denial, self.child_validity)?,
            parent: parent.sign(signer, self.denial, self.parent_validity)?,
        })
    }
}

/// Generates the two keys of a zone. The first one signs the keys.
pub(super) fn key_pair(folder: &Path, zone: &str, algorithm: &str) -> Result<[String; 2]> {
    let path = folder.to_string_lossy();
    let generate = |flags: &[&str]| -> Result<String> {
        // Knot signs only with keys that were active at the time of the signature.
        let times = ["-P", "20200101000000", "-A", "20200101000000"];
        let fixed = ["-q", "-a", algorithm, "-K", &path];
        let name = output("dnssec-keygen", &[&fixed[..], &times, flags, &[zone]].concat(), LIMIT)?;
        Ok(folder.join(name.trim()).to_string_lossy().into_owned())
    };
    Ok([generate(&["-f", "KSK"])?, generate(&[])?])
}

/// Returns the DS record of a key.
pub(super) fn ds(key: &str, option: &str) -> Result<String> {
    output("dnssec-dsfromkey", &[option, key], LIMIT)
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A zone that is to be signed.
pub(super) struct Job<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    pub(super) keys: &'a [String],
    pub(super) folder: &'a Path,
}

impl Job<'_> {
    /// Returns the lines of the signed zone.
    pub(super) fn sign(
        &self,
        signer: Signer,
        denial: Denial,
        validity: Validity,
    ) -> Result<Vec<String>> {
        let mut text = self.text.to_owned();
        for key in self.keys {
            let key = fs::read_to_string(format!("{key}.key"))?;
            text.extend(
                key.lines().filter(|line| !line.starts_with(';')).map(|line| format!("{line}\n")),
            );
        }
        fs::write(self.path("zone"), text)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let begin = match validity {
            Validity::Now => now - 3_600,
            Validity::Past => now - FAR,
            Validity::Future => now + FAR,
        };
        match signer {
            Signer::Bind => self.sign_with_bind(denial, begin)?,
            Signer::Ldns => self.sign_with_ldns(denial, begin)?,
            Signer::Knot => self.sign_with_knot(denial, begin)?,
        }
        Ok(fs::read_to_string(self.path("signed"))?.lines().filter_map(full_form).collect())
    }

    fn path(&self, extension: &str) -> String {
        self.folder.join(format!("{}.{extension}", self.name)).to_string_lossy().into_owned()
    }

    fn sign_with_bind(&self, denial: Denial, begin: u64) -> Result<()> {
        let (zone, signed, folder) =
            (self.path("zone"), self.path("signed"), self.folder.to_string_lossy());
        let (begin, end) = (bind_time(begin), bind_time(begin + WEEK));
        let fixed = [
            "-P", "-O", "full", "-d", &folder, "-o", self.name, "-f", &signed, "-s", &begin, "-e",
            &end,
        ];
        let (iterations, salt) = nsec3(denial);
        let denial: &[&str] = match denial {
            Denial::Nsec => &[],
            Denial::Nsec3 { .. } | Denial::LongSalt { .. } => &["-3", &salt, "-H", &iterations],
            Denial::OptOut { .. } => &["-3", "-", "-H", &iterations, "-A"],
        };
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        output("dnssec-signzone", &[&fixed[..], denial, &[&zone], &keys].concat(), LIMIT)?;
        Ok(())
    }

    fn sign_with_ldns(&self, denial: Denial, begin: u64) -> Result<()> {
        let (zone, signed) = (self.path("zone"), self.path("signed"));
        let (begin, end) = (begin.to_string(), (begin + WEEK).to_string());
        let fixed = ["-o", self.name, "-f", &signed, "-i", &begin, "-e", &end];
        let (iterations, salt) = nsec3(denial);
        let denial: &[&str] = match denial {
            Denial::Nsec => &[],
            Denial::Nsec3 { .. } | Denial::LongSalt { .. } => {
                &["-n", "-s", &salt, "-t", &iterations]
            }
            Denial::OptOut { .. } => &["-n", "-t", &iterations, "-p"],
        };
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        output("ldns-signzone", &[&fixed[..], denial, &[&zone], &keys].concat(), LIMIT)?;
        Ok(())
    }

    fn sign_with_knot(&self, denial: Denial, begin: u64) -> Result<()> {
        let folder = self.folder.join(format!("{}.knot", self.name));
        fs::create_dir(&folder)?;
        let path = folder.to_string_lossy();
        let (iterations, salt) = nsec3(denial);
        let denial = match denial {
            Denial::Nsec => "nsec3: off".into(),
            Denial::Nsec3 { .. } | Denial::LongSalt { .. } => {
                format!(
                    "nsec3: on\n    nsec3-iterations: {iterations}\n    nsec3-salt-length: {}",
                    salt.len() / 2
                )
            }
            Denial::OptOut { .. } => {
                format!(
                    "nsec3: on\n    nsec3-iterations: {iterations}\n    nsec3-salt-length: 0\n    nsec3-opt-out: on"
                )
            }
        };
        let conf = format!(
            "server:\n  rundir: {path}\ndatabase:\n  storage: {path}\npolicy:\n  - id: p\n    manual: on\n    \
             cds-cdnskey-publish: none\n    rrsig-lifetime: 7d\n    rrsig-refresh: 1d\n    {denial}\n\
             zone:\n  - domain: {}\n    storage: {}\n    file: {}.zone\n    dnssec-policy: p\n    dnssec-signing: on\n",
            self.name,
            self.folder.display(),
            self.name
        );
        let file = folder.join("knot.conf");
        fs::write(&file, conf)?;
        let conf = file.to_string_lossy();
        for key in self.keys {
            output("keymgr", &["-c", &conf, self.name, "import-bind", key], LIMIT)?;
        }
        let begin = begin.to_string();
        output("kzonesign", &["-c", &conf, "-t", &begin, "-o", &path, self.name], LIMIT)?;
        fs::rename(folder.join(format!("{}.zone", self.name)), self.path("signed"))?;
        Ok(())
    }
}

/// Returns the iterations and the salt of NSEC3 records.
fn nsec3(denial: Denial) -> (String, String) {
    match denial {
        Denial::Nsec => (String::new(), String::new()),
        Denial::Nsec3 { iterations } => (iterations.to_string(), "AABB".into()),
        Denial::OptOut { iterations } => (iterations.to_string(), String::new()),
        Denial::LongSalt { iterations } => (iterations.to_string(), "AB".repeat(255)),
    }
}

/// Returns a time in the format of dnssec-signzone: an offset from the current time.
fn bind_time(time: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    if time < now { format!("now-{}", now - time) } else { format!("now+{}", time - now) }
}

/// Returns a record of a zone file with one space between its fields, and with its class. Returns `None` for comments.
fn full_form(line: &str) -> Option<String> {
    let record = line.split(" ;{").next().unwrap_or_default();
    if record.starts_with(';') {
        return None;
    }
    let mut words: Vec<&str> = record.split_whitespace().collect();
    if words.len() > 3 && words[2] != "IN" {
        words.insert(2, "IN");
    }
    (words.len() > 3).then(|| words.join(" "))
}
