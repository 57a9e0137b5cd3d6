//! Tests of trials shared by several testers, which are started by common tools for running programs on several hosts.
//! The tools use the unmodified files in `dist/shards`.
//!
//! In each test, several testers write their results to a folder, and `merge` combines them. The server answers all
//! queries, so the verdict must be "passed".

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::harness::{Bench, LIGHT, LIGHT_QUERIES, LIMIT, Lab};
use super::hosts::Sshds;
use super::tally::Skipped;
use super::test::{ROOT, Test};
use crate::process::{self, Server, free_port, output, root, wait_until};
use crate::servers::wait_until_listens;

pub(super) static TESTS: &[Test] = &[
    Test::new(
        "shards: Slurm's script, three tasks",
        &["slurmctld", "slurmd", "sbatch", "munged", ROOT],
        slurm,
    ),
    Test::new(
        "shards: Ansible's playbook over ssh between namespaces",
        &["ansible-playbook", "sshd", "ssh", "ssh-keygen", "ip", ROOT],
        ansible,
    ),
    Test::new(
        "shards: Kubernetes' Job, validated, and its command lines",
        &["python3"],
        kubernetes,
    )
    .downloading(),
];

const VALIDATE: &str = "kubernetes-validate==1.37.0";

/// Returns the path of a file in `dist/shards`.
fn shipped(name: &str) -> PathBuf {
    root().join("dist/shards").join(name)
}

/// Starts a server that answers all queries, on a loopback port.
fn server(bench: &Bench) -> Result<(Server, String)> {
    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let args = ["reference-dut", "--listen", &address, "--capacity", "100000"];
    let server = Server::start(bench.program(), &args)?;
    wait_until_listens(&[], port)?;
    Ok((server, address))
}

/// Reads the merged trial from a file.
fn merged_in(file: &Path) -> Result<Value> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).context(text)
}

/// Requires that a merged trial complies with its plan: `testers` testers sent all queries, and each query was
/// answered.
fn is_whole(trial: &Value, testers: usize) -> Result<()> {
    ensure!(trial["verdict"] == "passed", "{trial}");
    ensure!(trial["sent"] == LIGHT_QUERIES && trial["valid"] == LIGHT_QUERIES, "{trial}");
    ensure!(trial["shards"].as_array().map(Vec::len) == Some(testers), "{trial}");
    Ok(())
}

/// A running Slurm with one node, which is configured with more CPUs than this host has. Slurm ends when this value is
/// dropped.
struct Slurm {
    config: String,
    _daemons: [Server; 3],
}

impl Slurm {
    fn start(bench: &Bench) -> Result<Slurm> {
        let folder = bench.folder.path().join("slurm");
        fs::create_dir_all(folder.join("spool"))?;
        fs::create_dir_all(folder.join("state"))?;
        let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let key: String = std::iter::repeat_with(rand::random::<char>).take(512).collect();
        fs::write(at("munge.key"), key)?;
        output("chmod", &["600", &at("munge.key")], LIMIT)?;
        let (control, node) = (free_port()?, free_port()?);
        let config = format!(
            "ClusterName=test\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={control}\nSlurmdPort={node}\n\
             SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={socket}\nCredType=cred/munge\n\
             StateSaveLocation={state}\nSlurmdSpoolDir={spool}\nSlurmctldPidFile={ctld}\nSlurmdPidFile={d}\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\nSelectType=select/cons_tres\n\
             SlurmdParameters=config_overrides\nReturnToService=2\n\
             NodeName=localhost NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN\n\
             PartitionName=test Nodes=localhost Default=YES State=UP\n",
            socket = at("munge.socket"),
            state = at("state"),
            spool = at("spool"),
            ctld = at("slurmctld.pid"),
            d = at("slurmd.pid"),
        );
        let config = bench.file("slurm/slurm.conf", &config)?;
        let munge = [
            "--foreground".into(),
            "--force".into(),
            format!("--key-file={}", at("munge.key")),
            format!("--socket={}", at("munge.socket")),
            format!("--pid-file={}", at("munge.pid")),
            format!("--log-file={}", at("munge.log")),
            format!("--seed-file={}", at("munge.seed")),
        ];
        let munged = Server::start("munged", &munge)?;
        let socket = folder.join("munge.socket");
        wait_until("munged makes no socket", LIMIT, || Ok(socket.exists()))?;
        let log = |name: &str| folder.join(name);
        let controller =
            Server::start_logged("slurmctld", &["-D", "-f", &config], &log("slurmctld.log"))?;
        let daemon = ["-D", "-N", "localhost", "-f", &config];
        let daemon = Server::start_logged("slurmd", &daemon, &log("slurmd.log"))?;
        let slurm = Slurm { config, _daemons: [daemon, controller, munged] };
        wait_until("Slurm's node does not become idle", LIMIT, || {
            let ran = slurm.run(&["sinfo", "--noheader", "--format=%T"])?;
            Ok(ran.stdout.trim() == "idle")
        })?;
        Ok(slurm)
    }

    /// Runs a Slurm command.
    fn run(&self, words: &[&str]) -> Result<process::Ran> {
        let config = format!("SLURM_CONF={}", self.config);
        process::run("env", &[&[config.as_str()], words].concat(), LIMIT)
    }
}

fn slurm(bench: &Bench) -> Result<()> {
    let slurm = Slurm::start(bench)?;
    let (_server, address) = server(bench)?;
    let script = shipped("dns64bench.sbatch").to_string_lossy().into_owned();
    let (folder, program) = (
        bench.folder.path().to_string_lossy(),
        format!("ALL,LEAD=8,DNS64BENCH={}", bench.program()),
    );
    let chdir = format!("--chdir={folder}");
    // All three tasks run on the only node, although the script requests a node for each task.
    let submit = ["--wait", "--parsable", &chdir, "--nodes=1", "--ntasks-per-node=3"];
    let submit = [&["sbatch"], &submit[..], &["--export", &program]].concat();
    let job = [&[script.as_str()], &["--server", &address][..], &LIGHT].concat();
    let trial = bench.valid(|| {
        let ran = slurm.run(&[&submit[..], &job].concat())?;
        let id = ran.stdout.trim();
        let said = fs::read_to_string(bench.path(&format!("dns64bench-{id}.out")));
        let merged = bench.folder.path().join(format!("dns64bench-{id}/merged.json"));
        match ran.status {
            Some(0 | 3) => merged_in(&merged),
            other => bail!("sbatch: {other:?}, {}, the job: {said:?}", ran.stderr),
        }
    })?;
    is_whole(&trial, 3)
}

fn ansible(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let sshds = Sshds::start(bench)?;
    // Each host queries a server on its own loopback interface, because this test only concerns how testers are
    // started.
    let port = free_port()?;
    let address = format!("[::1]:{port}");
    let listen = ["reference-dut", "--listen", &address, "--capacity", "100000"];
    let _servers = [bench.in_lab("dut", &listen)?, bench.in_lab("auth", &listen)?];
    let inventory = format!(
        "[testers]\nfar-dut\nfar-auth\n[testers:vars]\nansible_ssh_common_args=-F {}\n\
         ansible_python_interpreter=/usr/bin/python3\n",
        sshds.config
    );
    let inventory = bench.file("inventory", &inventory)?;
    let words = [&["--server", &address][..], &LIGHT].concat();
    let results = bench.path("ansible-results");
    let variables = serde_json::json!({
        "dns64bench": bench.program(), "lead": 20, "results": results, "measure": words,
    });
    let playbook = shipped("ansible-playbook.yml");
    let (playbook, variables) = (playbook.to_string_lossy(), variables.to_string());
    let command = ["ansible-playbook", "--inventory", &inventory, "--extra-vars", &variables];
    let within = [
        "lab",
        "exec",
        "tester",
        "--",
        "env",
        "ANSIBLE_NOCOLOR=1",
        "LC_ALL=C.UTF-8",
        // With this setting, no ssh connection outlives the playbook.
        "ANSIBLE_SSH_ARGS=-C",
    ];
    let all = [&within[..], &command, &[&*playbook]].concat();
    let few = [&all[..], &["--forks", "1"]].concat();
    let refused = process::run(bench.program(), &few, LIMIT)?;
    ensure!(
        refused.status != Some(0) && refused.stdout.contains("use --forks 2 or more"),
        "one fork for two testers: {:?}, {}",
        refused.status,
        refused.stdout
    );
    let merged = Path::new(&results).join("merged.json");
    let trial = bench.valid(|| {
        let ran = process::run(bench.program(), &all, LIMIT)?;
        merged_in(&merged)
            .with_context(|| format!("{:?}, {}{}", ran.status, ran.stdout, ran.stderr))
    })?;
    is_whole(&trial, 2)
}

fn kubernetes(bench: &Bench) -> Result<()> {
    let modules = bench.path("kubernetes");
    let pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", &modules];
    if process::output("python3", &[&pip[..], &[VALIDATE]].concat(), LIMIT).is_err() {
        return Err(Skipped(format!("pip cannot install {VALIDATE}")).into());
    }
    let path = format!("PYTHONPATH={modules}");
    let manifest = shipped("kubernetes-job.yaml").to_string_lossy().into_owned();
    let validate = format!("{modules}/bin/kubernetes-validate");
    output("env", &[&path, "python3", &validate, "--strict", &manifest], LIMIT)?;

    let text = fs::read_to_string(&manifest)?;
    let mut lines = text.lines().map(|line| line.trim_start_matches(['#', ' ']));
    let filter = lines.find_map(|line| line.strip_suffix(" > shard-$i.json"));
    let filter = filter.context("no filter creates shard-$i.json from a pod's log")?;
    let read = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let job: Value =
        serde_json::from_str(&output("env", &[&path, "python3", "-c", read, &manifest], LIMIT)?)?;
    let spec = &job["spec"];
    ensure!(spec["completions"] == 3 && spec["parallelism"] == 3, "not three at a time: {spec}");
    ensure!(spec["completionMode"] == "Indexed" && spec["backoffLimitPerIndex"] == 0, "{spec}");
    let container = &spec["template"]["spec"]["containers"][0];
    let (_server, address) = server(bench)?;
    let trial = bench.valid(|| {
        let start = output("date", &["--utc", "--iso-8601=ns", "--date=3 seconds"], LIMIT)?;
        let words = (0..3).map(|index| command_line(container, index, start.trim()));
        let words = words.collect::<Result<Vec<_>>>()?;
        let mut testers = Vec::new();
        for words in &words {
            // The server, rate and prefix in the Job, which users adapt, are replaced with those of this test.
            let words = words.iter().map(String::as_str).filter(|word| {
                !["--server=", "--rate=", "--expect-prefix="]
                    .iter()
                    .any(|own| word.starts_with(own))
            });
            let words: Vec<_> = words.chain(["--server", &address]).chain(LIGHT).collect();
            testers.push(Server::start(bench.program(), &words)?);
        }
        let mut files = Vec::new();
        for (index, tester) in testers.into_iter().enumerate() {
            // A pod's log contains other output in addition to its result.
            let log = format!("Preparing\n{}\nThe end\n", tester.wait()?);
            let log = bench.file(&format!("pod-{index}.log"), &log)?;
            let result = output("sh", &["-c", &format!("{filter} < \"$0\""), &log], LIMIT)?;
            files.push(bench.file(&format!("pod-{index}.json"), &result)?);
        }
        let files = files.iter().map(String::as_str);
        let merge = ["merge", "--json"].into_iter().chain(files).collect::<Vec<_>>();
        let ran = process::run(bench.program(), &merge, LIMIT)?;
        match ran.status {
            Some(0 | 3) => Ok(serde_json::from_str(&ran.stdout)?),
            other => bail!("merge: {other:?}, {}", ran.stderr),
        }
    })?;
    is_whole(&trial, 3)
}

/// Returns a container's `args` as the kubelet expands them in the pod with this index: `$(NAME)` is replaced with the
/// variable `NAME` in `env`.
fn command_line(container: &Value, index: u32, start: &str) -> Result<Vec<String>> {
    let variables = container["env"].as_array().context("no env")?.iter().map(|variable| {
        let name = variable["name"].as_str().context("no name")?;
        let from = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        let value = match (variable["value"].as_str(), from) {
            (Some("START_AT_OF_ALL"), None) => start.to_owned(),
            (None, Some("metadata.annotations['batch.kubernetes.io/job-completion-index']")) => {
                index.to_string()
            }
            _ => bail!("not a variable of this Job: {variable}"),
        };
        Ok((format!("$({name})"), value))
    });
    let variables = variables.collect::<Result<Vec<_>>>()?;
    let args = container["args"].as_array().context("no args")?.iter();
    args.map(|word| {
        let word = word.as_str().context("an argument that is no text")?.to_owned();
        let word = variables.iter().fold(word, |word, (name, value)| word.replace(name, value));
        ensure!(!word.contains("$("), "{word} was not replaced");
        Ok(word)
    })
    .collect()
}
