//! The agent of a host (`dns64bench agent`). It reads requests from standard input, one JSON object
//! per line, and writes replies to standard output. At the end of its input, it stops all processes
//! that it started.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tester::authdns::status;
use wire::name::Domain;
use wire::template::QueryTemplate;

use crate::environment::{Environment, Tree};
use crate::host::protocol::{Ended, Greeting, Reply, Request};
use crate::numa::Numa;
use crate::process::{Process, allowed_cpus, cpu_seconds, end_leftover, other_seconds, quota};
use crate::servers::find;

/// Timeout for a query that tests whether a server answers.
const ASKED: Duration = Duration::from_millis(300);

/// Executes the requests from `input`, and writes the replies to `output`. Returns at the end of
/// `input`.
///
/// # Errors
/// Returns an error if the folder cannot be used, or if reading `input` or writing `output` fails.
pub fn serve(folder: &Path, input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let registry = folder.join("running");
    fs::create_dir_all(&registry)?;
    end_leftover(&registry)?;
    let scratch = tempfile::tempdir()?;
    let greeting = Greeting {
        version: crate::BUILD.into(),
        program: std::env::current_exe()?,
        folder: folder.canonicalize()?,
        scratch: scratch.path().into(),
        boot_id: net::clock::boot_id(),
        environment: Environment::observe(),
    };
    say(&mut output, &greeting)?;
    let mut agent = Agent { folder: greeting.folder.clone(), registry, processes: HashMap::new() };
    for line in input.lines() {
        let reply = match serde_json::from_str(&line?) {
            Ok(request) => {
                agent.carry_out(request).unwrap_or_else(|e| Reply::Refused(e.to_string()))
            }
            Err(e) => Reply::Refused(format!("invalid request: {e}")),
        };
        match say(&mut output, &reply) {
            // The program that sent the requests has closed the connection.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => break,
            said => said?,
        }
    }
    Ok(())
}

fn say(output: &mut impl Write, what: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

struct Agent {
    folder: PathBuf,
    registry: PathBuf,
    /// Processes by id. The processes are ended when this value is dropped.
    processes: HashMap<u32, Process>,
}

impl Agent {
    fn carry_out(&mut self, request: Request) -> io::Result<Reply> {
        Ok(match request {
            Request::Write { path, text } => {
                fs::write(self.file(&path)?, text)?;
                Reply::Done
            }
            Request::Read { path, last } => Reply::Text(end_of(&self.folder.join(path), last)?),
            Request::Find { program } => Reply::Found(find(&program)),
            // The limit is part of the command, which begins with `timeout`.
            Request::Run { words, limit: _ } => {
                // The output goes to a file. A pipe could stay open forever, because processes that
                // the command leaves running would keep it open.
                let mut file = tempfile::tempfile()?;
                let (out, err) = (file.try_clone()?, file.try_clone()?);
                let status =
                    command(&words, &[])?.stdin(Stdio::null()).stdout(out).stderr(err).status()?;
                let mut output = Vec::new();
                file.rewind()?;
                file.read_to_end(&mut output)?;
                Reply::Ran {
                    success: status.success(),
                    output: String::from_utf8_lossy(&output).into_owned(),
                }
            }
            Request::Start { words, cpus, log, output } => {
                let output = output.map(|path| File::create(self.file(&path)?)).transpose()?;
                let process = Process::start(
                    command(&words, &cpus)?,
                    output,
                    &self.file(&log)?,
                    &self.registry,
                )?;
                let id = process.pid();
                self.processes.insert(id, process);
                Reply::Started(id)
            }
            Request::Poll { id, wait } => Reply::State(self.look(id, wait)?),
            Request::Cpu { ids } => Reply::Seconds(cpu_seconds(&ids)),
            Request::Others { ours } => Reply::Others(other_seconds(&ours)),
            Request::Threads { ids } => Reply::Threads(allowed_cpus(&ids)),
            Request::Quota { ids } => Reply::Quota(quota(&ids)),
            Request::Stop { id } => {
                drop(self.processes.remove(&id));
                Reply::Done
            }
            Request::Counters { socket } => Reply::Counters(Box::new(status::read(&socket)?)),
            Request::Answers { server } => Reply::Answered(answers(server)?),
            Request::Numa => Reply::Numa(Numa::read(&Tree::here())),
            Request::Clock => Reply::Clock(net::clock::wall()),
        })
    }

    /// Returns the path of a file below the agent's folder, and creates the missing folders in this
    /// path. The agent's folder itself is not recreated if it was removed during a campaign.
    fn file(&self, path: &Path) -> io::Result<PathBuf> {
        fs::metadata(&self.folder)?;
        let path = self.folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        Ok(path)
    }

    fn look(&self, id: u32, wait: Duration) -> io::Result<Option<Ended>> {
        let process = self
            .processes
            .get(&id)
            .ok_or_else(|| io::Error::other(format!("{id} was not started")))?;
        let give_up = Instant::now() + wait;
        loop {
            let ended = process.ended();
            if ended.is_some() || Instant::now() >= give_up {
                return Ok(ended.map(|(status, how)| Ended {
                    success: status == Some(0),
                    status,
                    how,
                }));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn command(words: &[String], cpus: &[usize]) -> io::Result<Command> {
    let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let pin = if cpus.is_empty() {
        Vec::new()
    } else {
        vec!["taskset".to_owned(), "-c".into(), list.join(",")]
    };
    let all = [&pin, words].concat();
    let (program, arguments) =
        all.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

fn end_of(path: &Path, last: u64) -> io::Result<String> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(e) => return Err(e),
    };
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(last)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns true if a server answers a query for a test name with NOERROR or NXDOMAIN.
fn answers(server: SocketAddr) -> io::Result<bool> {
    let any: SocketAddr =
        if server.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" }.parse().expect("a constant");
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(ASKED))?;
    let query = QueryTemplate::aaaa(&Domain::dns64perf());
    if socket.send(query.bytes()).is_err() {
        return Ok(false);
    }
    // `recv` fails if an ICMP error arrives, which means that the server is not listening yet.
    let mut reply = [0; 512];
    // NXDOMAIN (3) counts as an answer, because the test name does not exist in every zone.
    Ok(matches!(socket.recv(&mut reply), Ok(n) if n >= 12 && [0, 3].contains(&(reply[3] & 0xf))))
}

#[cfg(test)]
mod tests {
    use units::Nanos;

    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    /// Returns the agent's replies to these requests.
    fn asked(folder: &Path, requests: &[Request]) -> Vec<Reply> {
        let lines: Vec<String> =
            requests.iter().map(|r| serde_json::to_string(r).unwrap()).collect();
        let mut output = Vec::new();
        serve(folder, lines.join("\n").as_bytes(), &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        let mut lines = text.lines();
        let greeting: Greeting = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert!(!greeting.scratch.exists(), "it is removed with the agent");
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn started_processes_end_with_the_input() {
        let folder = tempfile::tempdir().unwrap();
        let words = ["sh", "-c", "echo $$; exec sleep 1000"].map(str::to_owned).to_vec();
        let start = Request::Start { words, cpus: vec![], log: "log".into(), output: None };
        let log = folder.path().join("log");
        let wait = format!("until [ -s {} ]; do sleep 0.05; done", log.display());
        let pause =
            Request::Run { words: ["sh", "-c", &wait].map(str::to_owned).to_vec(), limit: SOON };
        let look = Request::Poll { id: 1, wait: Duration::ZERO };
        let replies = asked(folder.path(), &[start, look, pause]);
        let Reply::Started(id) = replies[0] else { panic!("{replies:?}") };
        assert!(
            matches!(&replies[1], Reply::Refused(why) if why.contains("was not started")),
            "{replies:?}"
        );
        assert_eq!(fs::read_to_string(log).unwrap().trim(), id.to_string());
        assert!(!Path::new("/proc").join(id.to_string()).exists());
        assert_eq!(fs::read_dir(folder.path().join("running")).unwrap().count(), 0);
    }

    #[test]
    fn a_removed_folder_is_not_created_again() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("run");
        let remove = Request::Run {
            words: vec!["rm".into(), "-r".into(), folder.display().to_string()],
            limit: SOON,
        };
        let write = Request::Write { path: "servers/a/x.conf".into(), text: "x".into() };
        let words = vec!["true".into()];
        let start = Request::Start { words, cpus: vec![], log: "log".into(), output: None };
        let replies = asked(&folder, &[write.clone(), remove, write, start]);
        assert!(matches!(replies[0], Reply::Done), "{replies:?}");
        assert!(matches!(replies[2..], [Reply::Refused(_), Reply::Refused(_)]), "{replies:?}");
        assert!(!folder.exists());
    }

    #[test]
    fn files_commands_and_nonsense() {
        let folder = tempfile::tempdir().unwrap();
        let run = |script: &str| Request::Run {
            words: ["sh", "-c", script].map(str::to_owned).to_vec(),
            limit: SOON,
        };
        let replies = asked(
            folder.path(),
            &[
                Request::Write { path: "a/b".into(), text: "0123456789".into() },
                Request::Read { path: "a/b".into(), last: 4 },
                Request::Read { path: "none".into(), last: 4 },
                run("echo out; echo err >&2; exit 3"),
                Request::Run { words: vec!["/nonexistent".into()], limit: SOON },
                Request::Answers { server: "127.0.0.1:9".parse().unwrap() },
                Request::Clock,
            ],
        );
        assert_eq!(
            replies[..3],
            [Reply::Done, Reply::Text("6789".into()), Reply::Text(String::new())]
        );
        assert_eq!(replies[3], Reply::Ran { success: false, output: "out\nerr\n".into() });
        assert!(
            matches!(&replies[4], Reply::Refused(_)) && replies[5] == Reply::Answered(false),
            "{replies:?}"
        );
        let Reply::Clock(said) = replies[6] else { panic!("{replies:?}") };
        assert!(net::clock::wall().since(said) < Nanos(5 * Nanos::SECOND.0));
        let mut output = Vec::new();
        serve(folder.path(), &b"what?\n"[..], &mut output).unwrap();
        assert!(String::from_utf8(output).unwrap().contains("invalid request"));
    }
}
