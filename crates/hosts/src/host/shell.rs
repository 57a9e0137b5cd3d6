//! Connection to a host that has ssh and a POSIX shell but no dns64bench. In place of an agent,
//! `sh` executes scripts that are sent over ssh. When the connection closes, the shell's input
//! ends, and the shell stops all processes that it started.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use crate::environment::{Environment, Tree, quota};
use crate::host::machine::{Connection, GREETING, HostError, Machine};
use crate::host::pipe::{Pipe, PipeError};
use crate::host::protocol::{Ended, Greeting, Reply, Request};
use crate::interruption::Interruption;
use crate::numa::Numa;
use crate::process::{FIRST_NAMESPACE, allowed, family, family_seconds, seconds_of_others};
use crate::text::{MESSAGE, plain};

/// Line that precedes the output of every command. Output before this line comes from the shell's
/// start-up files.
const BEGIN: &str = "dns64bench-output";
/// First word of the line that follows the output of every command. The rest of the line is the
/// command's exit status.
const MARK: &str = "dns64bench-status";
/// Number of lines in the first output of a host's shell. The lines contain the folder, the number of CPUs, the user id
/// and the boot id.
const FACTS: usize = 4;
/// Shell functions that are defined when a connection begins:
///
/// - `alive`: true if a process exists and is not a zombie
/// - `is_child`: true if this shell started the given process
/// - `until_ended`: waits up to 5 s until a process has ended
/// - `end`: ends a process group, or a single process that was just started and has no group yet
/// - `end_all`: ends all started processes when the connection ends
/// - `born`: returns the start time of a process, in ticks since boot
/// - `note`: stores the id and start time of a process, so that a later run can end the process if this shell is killed
const PRELUDE: &str = r#"
alive() { case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) in Z*|'') return 1;; esac; }
is_child() { [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 2)" = "$$" ]; }
until_ended() { n=0; while alive "$1" && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done; }
end() {
  kill -TERM "-$1" 2>/dev/null || { is_child "$1" && kill -TERM "$1" 2>/dev/null; }
  kill -CONT "-$1" 2>/dev/null; until_ended "$1"; kill -KILL "-$1" 2>/dev/null; until_ended "$1"
}
end_all() { for p in $started; do end "$p"; done; [ -z "$registry" ] || rm -f "$registry"; }
born() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }
note() { echo "$1 $(born "$1")" >> "$registry"; }
started=
registry=
trap end_all EXIT
trap 'exit 1' HUP TERM INT PIPE
"#;
/// Script that ends processes of earlier shells. These shells registered the processes in files in the host's folder. A
/// process is ended only if its start time matches, because its id may have been reused. The script then sets the path
/// of the file in which this shell registers its own processes.
const END_LEFT_OVER: &str = r#"
for r in running.*; do
  [ -e "$r" ] || continue
  while read -r p t; do [ -n "$t" ] && [ "$(born "$p")" = "$t" ] && end "$p"; done < "$r"
  rm -f "$r"
done
registry=$PWD/running.$$
"#;

/// Quotes a word for the shell.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn quoted_all(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

struct ShellLink(Pipe);

impl ShellLink {
    /// Runs a script and returns its status and its output.
    fn run(&mut self, script: &str) -> Result<(i32, String), PipeError> {
        let begin = format!("printf '\\n%s\\n' {BEGIN}");
        let end = format!("printf '\\n%s %s\\n' {MARK} \"$?\"");
        self.0.write(format!("{begin}\n{script}\n{end}\n").as_bytes())?;
        while self.0.line()? != BEGIN {}
        let mut lines = Vec::new();
        loop {
            let line = self.0.line()?;
            if let Some(status) = line.strip_prefix(MARK) {
                return Ok((status.trim().parse().unwrap_or(-1), lines.join("\n")));
            }
            lines.push(line);
        }
    }

    /// Returns the CPUs on which the threads of the given processes and of their descendants may run.
    fn threads(&mut self, ids: &[u32]) -> Result<Reply, PipeError> {
        let (_, stats) = self.run("cat /proc/[0-9]*/stat 2>/dev/null")?;
        let folders =
            family(stats.lines(), ids).into_iter().map(|pid| format!("/proc/{pid}/task/*/status"));
        let files = folders.collect::<Vec<_>>().join(" ");
        let (_, lines) = self.run(&format!("grep -sh Cpus_allowed_list /dev/null {files}"))?;
        Ok(Reply::Threads(allowed(lines.lines())))
    }

    /// Returns the smallest CPU quota of the given processes and of their descendants.
    fn quota(&mut self, ids: &[u32]) -> Result<Reply, PipeError> {
        let (_, stats) = self.run("cat /proc/[0-9]*/stat 2>/dev/null")?;
        let processes = family(stats.lines(), ids).into_iter();
        let lists =
            processes.map(|pid| format!("/proc/{pid}/cgroup")).collect::<Vec<_>>().join(" ");
        let (_, groups) = self.run(&format!("cat /dev/null {lists} 2>/dev/null"))?;
        let word = |file: &PathBuf| quoted(&file.to_string_lossy());
        let files: Vec<String> =
            groups.lines().flat_map(quota::files).map(|file| word(&file)).collect();
        let (_, printed) = self.run(&Tree::script_for(&files.join(" ")))?;
        let tree = Tree::printed(&printed);
        let quotas =
            groups.lines().filter_map(|group| Some(quota::smallest(&tree, group)?.millicpu));
        Ok(Reply::Quota(quotas.min()))
    }

    /// Returns the CPU time that all programs except `ours` and this shell have used so far, in
    /// seconds.
    fn others(&mut self, ours: &[u32]) -> Result<Reply, PipeError> {
        let script =
            "echo $$; readlink /proc/self/ns/pid || echo; cat /proc/[0-9]*/stat 2>/dev/null";
        let (_, text) = self.run(script)?;
        let mut lines = text.lines();
        let shell = lines.next().and_then(|pid| pid.trim().parse::<u32>().ok());
        let namespace = lines.next();
        let mut ours = ours.to_vec();
        ours.extend(shell);
        let sees_all =
            namespace == Some(FIRST_NAMESPACE) && lines.clone().any(|line| line.starts_with("1 ("));
        Ok(Reply::Others(sees_all.then(|| seconds_of_others(lines, &ours))))
    }

    /// Runs a script and returns its output. If its exit status is not 0, returns `Reply::Refused`
    /// with the output.
    fn must(&mut self, script: &str) -> Result<Result<String, Reply>, PipeError> {
        let (status, text) = self.run(&format!("{{ {script}; }} 2>&1"))?;
        Ok(if status == 0 {
            Ok(text)
        } else {
            Err(Reply::Refused(format!("{} (status {status})", text.trim())))
        })
    }
}

impl Connection for ShellLink {
    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, PipeError> {
        self.0.begin(limit);
        let path = |path: &Path| quoted(&path.to_string_lossy());
        let above = |path: &Path| {
            quoted(&Path::new(".").join(path.parent().unwrap_or(path)).to_string_lossy())
        };
        let (script, understand): (String, fn(&str) -> Reply) = match request {
            Request::Write { path: file, text } => {
                let folder = above(file);
                (
                    format!("mkdir -p {folder} && printf %s {} > {}", quoted(text), path(file)),
                    |_| Reply::Done,
                )
            }
            Request::Read { path: file, last } => {
                (format!("[ ! -e {0} ] || tail -c {last} {0}", path(file)), |text| {
                    Reply::Text(text.into())
                })
            }
            Request::Find { program } => {
                let script =
                    format!("PATH=$PATH:/usr/sbin:/sbin command -v {} || :", path(program));
                (script, |text| {
                    Reply::Found(text.lines().next().filter(|l| !l.is_empty()).map(PathBuf::from))
                })
            }
            Request::Run { words, limit: _ } => {
                let (status, output) =
                    self.run(&format!("{{ {}; }} 2>&1 </dev/null", quoted_all(words)))?;
                return Ok(Reply::Ran { success: status == 0, output });
            }
            Request::Start { words, cpus, log, output } => {
                let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
                let pin = if cpus.is_empty() {
                    String::new()
                } else {
                    format!("taskset -c {} ", list.join(","))
                };
                let (folder, log) = (above(log), path(log));
                let output = output
                    .as_ref()
                    .map_or_else(|| format!(">>{log}"), |output| format!(">{}", path(output)));
                // `setsid` starts the command in its own process group, so that all its processes
                // can be ended together.
                let words = quoted_all(words);
                let start = format!("setsid {pin}{words} {output} 2>>{log} </dev/null &");
                let start =
                    format!("{start} started=\"$started $!\"; note $! 2>/dev/null; echo $!");
                (format!("mkdir -p {folder}; {start}"), |text| match text.trim().parse() {
                    Ok(id) => Reply::Started(id),
                    Err(_) => Reply::Refused(text.into()),
                })
            }
            Request::Poll { id, wait } => {
                let tenths = wait.as_millis() / 100;
                let wait = format!(
                    "n=0; while alive {id} && [ $n -lt {tenths} ]; do sleep 0.1; n=$((n+1)); done"
                );
                // `wait` returns the exit status only once, so the status is stored in a variable.
                let ask = format!(
                    "[ -n \"$status_{id}\" ] || {{ wait {id}; status_{id}=$?; }}; echo \"$status_{id}\""
                );
                (
                    format!(
                        "{wait}; if [ -z \"$status_{id}\" ] && alive {id}; then :; else {ask}; fi"
                    ),
                    |text| {
                        let text = text.trim();
                        let status: Option<i32> = text.parse().ok();
                        let ended = Ended {
                            success: status == Some(0),
                            status,
                            how: format!("exit status: {text}"),
                        };
                        Reply::State((!text.is_empty()).then_some(ended))
                    },
                )
            }
            Request::Cpu { ids } => {
                // Errors of `cat` are discarded, because processes may end between the listing and
                // the reading.
                let (_, text) = self.run("cat /proc/[0-9]*/stat 2>/dev/null")?;
                return Ok(Reply::Seconds(family_seconds(text.lines(), ids)));
            }
            Request::Others { ours } => return self.others(ours),
            Request::Threads { ids } => return self.threads(ids),
            Request::Quota { ids } => return self.quota(ids),
            Request::Stop { id } => {
                let others = format!(
                    "started=$(for p in $started; do [ \"$p\" = {id} ] || echo \"$p\"; done)"
                );
                (format!("end {id}; wait {id} 2>/dev/null; {others}; :"), |_| Reply::Done)
            }
            Request::Numa => (Numa::script(), |text| Reply::Numa(Numa::read(&Tree::printed(text)))),
            Request::Counters { .. } | Request::Answers { .. } | Request::Clock => {
                return Ok(Reply::Refused("there is no dns64bench on this host".into()));
            }
        };
        Ok(self.must(&script)?.map_or_else(|refused| refused, |text| understand(&text)))
    }
}

/// Connects to a host that has only a shell. `command` opens the connection. `copies` is the run folder on this
/// machine, into which the host's files are copied. It is `None` if the host uses the run folder directly.
///
/// # Errors
/// Returns an error if the host is unreachable, or has no shell.
pub(super) fn greeted(
    host: &str,
    command: Command,
    folder: &Path,
    copies: Option<&Path>,
    interruption: &Interruption,
) -> Result<Machine, HostError> {
    let unreachable = |why: String| HostError::Unreachable { host: host.into(), why };
    let mut link = ShellLink(Pipe::open(command, interruption, None).map_err(unreachable)?);
    link.0.begin(GREETING);
    let place = quoted(&folder.to_string_lossy());
    let facts = "pwd; nproc; id -u; cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo";
    let environment = Environment::script();
    let script = format!(
        "{PRELUDE}\nmkdir -p {place} && cd {place} && {{ {END_LEFT_OVER} {facts}; {environment}; }}"
    );
    let (status, text) = link.run(&script).map_err(|error| match error {
        PipeError::Gone(why) => unreachable(why),
        PipeError::Interrupted => HostError::Interrupted,
    })?;
    let mut lines = text.splitn(FACTS + 1, '\n');
    let facts: Vec<String> =
        lines.by_ref().take(FACTS).map(|line| line.trim().to_owned()).collect();
    let (Some(rest), true) = (lines.next(), status == 0) else {
        return Err(unreachable(format!(
            "unexpected output of its shell: {}",
            plain(&text, MESSAGE)
        )));
    };
    let fact = |i: usize| facts[i].clone();
    let environment = Environment::printed(rest, fact(1).parse().unwrap_or(1), fact(2) == "0");
    let folder = PathBuf::from(fact(0));
    let greeting = Greeting {
        version: String::new(),
        program: PathBuf::new(),
        scratch: folder.clone(),
        boot_id: fact(3),
        folder,
        environment,
    };
    Ok(Machine {
        host: host.into(),
        link: Rc::new(RefCell::new(Box::new(link))),
        greeting: Rc::new(greeting),
        copies: copies.map(Into::into),
        interruption: interruption.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use crate::place::Allowed;

    use super::*;

    fn shell(folder: &Path) -> Machine {
        let mut command = Command::new("sh");
        command.current_dir(folder);
        greeted("here", command, Path::new("work"), None, &Interruption::new()).unwrap()
    }

    /// Start-up files of a shell may write to standard output, with or without a newline.
    #[test]
    fn a_banner_is_not_read_as_facts_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let quiet = shell(folder.path());
        for banner in ["Welcome\nlast login: today\n", "a\nb\nc\nd\ne\nf\n", "no end of line"] {
            let mut command = Command::new("sh");
            let script = format!("printf {}; exec sh", quoted(banner));
            command.current_dir(folder.path()).args(["-c", &script]);
            let machine =
                greeted("here", command, Path::new("work"), None, &Interruption::new()).unwrap();
            let (found, expected) = (machine.greeting(), quiet.greeting());
            assert_eq!(
                (&found.folder, &found.boot_id, found.environment.cpus),
                (&expected.folder, &expected.boot_id, expected.environment.cpus),
                "{banner:?}"
            );
        }
    }

    const SOON: Duration = Duration::from_secs(30);

    fn words(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_shell_does_what_an_agent_does() {
        let folder = tempfile::tempdir().unwrap();
        let machine = shell(folder.path());
        assert_eq!(machine.greeting().folder, folder.path().canonicalize().unwrap().join("work"));
        assert!(
            machine.greeting().environment.cpus > 0 && machine.greeting().environment.memory > 0
        );
        machine.write(Path::new("a/b c"), "it's\n'quoted' $x \\n\n").unwrap();
        assert_eq!(machine.read(Path::new("a/b c"), 100).unwrap(), "it's\n'quoted' $x \\n\n");
        assert_eq!(machine.read(Path::new("none"), 100).unwrap(), "");
        assert_eq!(
            machine.run(&words("echo a; echo b >&2; exit 4"), SOON).unwrap(),
            (false, "a\nb\n".into())
        );
        let hanging =
            machine.run(&words("echo begun; exec sleep 1000"), Duration::from_secs(1)).unwrap();
        assert_eq!(hanging, (false, "begun\n(ended after its time limit of 1 s)".into()));
        let missing = machine.run(&["no-such-program".to_owned()], SOON);
        assert!(
            matches!(missing, Err(HostError::Refused { why, .. }) if why.contains("no-such-program"))
        );
        assert!(machine.find(Path::new("sh")).unwrap().is_some());
        assert_eq!(machine.find(Path::new("no-such-program")).unwrap(), None);
        assert!(matches!(
            machine.answers("127.0.0.1:53".parse().unwrap()),
            Err(HostError::Refused { .. })
        ));

        let short =
            machine.start(&words("echo done; exit 7"), &[], Path::new("log"), None).unwrap();
        let ended = short.ended(Duration::from_secs(30)).unwrap().unwrap();
        assert_eq!(
            (ended.success, ended.status, ended.how.as_str()),
            (false, Some(7), "exit status: 7")
        );
        assert_eq!(short.log_tail(), "done\n");
        let busy =
            machine.start(&words("while :; do :; done"), &[0], Path::new("log"), None).unwrap();
        assert_eq!(busy.ended(Duration::ZERO).unwrap(), None);
        let give_up = Instant::now() + Duration::from_secs(30);
        while machine.cpu(&[busy.id()]).unwrap() < 0.05 {
            assert!(Instant::now() < give_up, "a busy process uses no CPU");
        }
        let threads = machine.threads(&[busy.id()]).unwrap();
        assert_eq!(
            threads,
            [Allowed { cpus: [0].into(), threads: 1 }],
            "it is on CPU 0 as requested"
        );
        assert_eq!(machine.threads(&[]).unwrap(), []);
        assert_eq!(machine.quota(&[busy.id()]).unwrap(), crate::process::quota(&[busy.id()]));
        let others = |ours: &[u32]| machine.others(ours.to_vec()).unwrap();
        assert_eq!(others(&[]).is_some(), crate::process::other_seconds(&[]).is_some());
        assert!(machine.topology().unwrap().cpus().contains(&0));
        let id = busy.id();
        drop(busy);
        assert!(!runs(id));
    }

    /// True if a process is running and is not a zombie.
    fn runs(id: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    #[test]
    fn the_next_shell_ends_leftover_processes() {
        let folder = tempfile::tempdir().unwrap();
        let lost = shell(folder.path());
        let sleeping = lost.start(&words("sleep 1000"), &[], Path::new("log"), None).unwrap();
        let id = sleeping.id();
        // The first shell still waits for a connection that has gone silent.
        assert!(runs(id));
        shell(folder.path());
        assert!(!runs(id));
    }

    #[test]
    fn processes_of_a_shell_end_with_its_input() {
        let folder = tempfile::tempdir().unwrap();
        let machine = shell(folder.path());
        let sleeping = machine.start(&words("sleep 1000"), &[], Path::new("log"), None).unwrap();
        let id = sleeping.id();
        // The handle is forgotten, so no request stops the process. The same happens if a
        // connection is lost.
        std::mem::forget(sleeping);
        assert!(runs(id));
        let link = Rc::clone(&machine.link);
        // The forgotten handle keeps a clone of the machine, and thus the link, alive. The link is
        // therefore replaced, and the previous link is dropped.
        struct Gone;
        impl Connection for Gone {
            fn ask(&mut self, _: &Request, _: Duration) -> Result<Reply, PipeError> {
                Err(PipeError::Gone("gone".into()))
            }
        }
        drop(link.replace(Box::new(Gone)));
        assert!(!runs(id));
    }
}
