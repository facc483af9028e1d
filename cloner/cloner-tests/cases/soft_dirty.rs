//! Soft-dirty bits on a kernel that has nothing better, in a virtual machine that boots, clones a program and powers
//! off.

use cloner_tests::{compile, redclone, root, workshop};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// First program of the machine. It prints results to the console, on lines that begin with "result".
const INIT: &str = r#"#!/bin/busybox sh
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox ifconfig lo 127.0.0.1 up
export REDCLONE_SECRET=c10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10e
export PATH=/bin REDCLONE_DIR=/tmp/redclone
busybox mkfifo /tmp/stdin
for port in 7777 7778 7779; do
    redclone serve --listen 127.0.0.1:$port --address-file /tmp/address-$port > /tmp/copy-$port 2> /tmp/serve-$port &
done
redclone run --pid-file /tmp/pid -- torture 5 STEPS < /tmp/stdin > /tmp/source 2> /tmp/run &
embedder < /tmp/stdin > /tmp/embedder 2> /tmp/run-embedder &
exec 3> /tmp/stdin
show() { busybox cat /tmp/source /tmp/embedder /tmp/copy-* /tmp/run* /tmp/serve-* /tmp/push > /dev/console 2>&1; }
wait_for() {
    left=3000
    until busybox grep -q "$1" "$2" 2> /dev/null; do
        busybox usleep 20000
        left=$((left - 1))
        if [ $left = 0 ]; then echo "no $1 in $2" > /dev/console; show; busybox poweroff -f; fi
    done
}
wait_for running /tmp/source
push() {
    wait_for : /tmp/address-$2
    redclone push $(busybox cat /tmp/pid) 127.0.0.1:$2 --tracking $1 --verify-memory --json > /tmp/push 2>&1
    echo "result $1 $? $(busybox grep -e redclone: -e '"done"' /tmp/push)" > /dev/console
}
push write-protect 7777
push auto 7777
push soft-dirty 7778
wait_for process /tmp/run-embedder
busybox sed -n 's/^process //p' /tmp/run-embedder > /tmp/pid
wait_for running /tmp/embedder
push soft-dirty 7779
exec 3>&-
for file in source copy-7777 copy-7778 embedder copy-7779; do wait_for done /tmp/$file; done
for file in embedder copy-7779; do echo "result $file $(busybox grep cut /tmp/$file)" > /dev/console; done
for port in 7777 7778; do
    if (echo running; busybox cat /tmp/copy-$port) | busybox cmp -s - /tmp/source; then
        echo "result same $port" > /dev/console
    fi
done
show
busybox poweroff -f
"#;

/// Files that the virtual machine is built from.
struct Machine {
    kernel: PathBuf,
    busybox: PathBuf,
}

impl Machine {
    fn find() -> Result<Self, String> {
        for program in ["qemu-system-x86_64", "cpio"] {
            let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().expect("sh runs");
            if !found.status.success() {
                return Err(format!("{program} is not installed"));
            }
        }
        let busybox = PathBuf::from("/bin/busybox");
        if !busybox.exists() {
            return Err("busybox is not installed".into());
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let directory = target.join("test-tools/kernel/boot");
        let kernels = std::fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut kernels = kernels
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-6.1")));
        let kernel = kernels.next().ok_or_else(|| format!("no kernel in {}", directory.display()))?;
        Ok(Self { kernel, busybox })
    }
}

/// Installs a program and its libraries in the machine's root directory.
fn install(file: &Path, name: &str, directory: &Path) {
    let copy = |from: &Path, to: PathBuf| {
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("the disk has room");
        std::fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    copy(file, directory.join("bin").join(name));
    let listed = Command::new("ldd").arg(file).output().expect("ldd runs");
    for word in String::from_utf8_lossy(&listed.stdout).split_whitespace().filter(|word| word.starts_with('/')) {
        copy(Path::new(word), directory.join(word.trim_start_matches('/')));
    }
}

fn sh(script: &str, directory: &Path) {
    let ended = Command::new("sh").args(["-ec", script]).current_dir(directory).output().expect("sh runs");
    assert!(ended.status.success(), "{script}: {}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn soft_dirty_bits_find_writes_where_nothing_better_exists() {
    let machine = match Machine::find() {
        Ok(machine) => machine,
        Err(why) => return eprintln!("skipped: {why}; scripts/setup-tests.sh installs what this test needs"),
    };
    let directory = tempfile::tempdir_in(workshop()).expect("the disk has room");
    let files = directory.path().join("files");
    std::fs::create_dir_all(files.join("tmp")).expect("the disk has room");
    for name in ["proc", "sys", "dev"] {
        std::fs::create_dir(files.join(name)).expect("the disk has room");
    }
    let program = redclone().canonicalize().expect("it is there");
    install(&machine.busybox, "busybox", &files);
    install(&program, "redclone", &files);
    install(&compile("torture.c", &["-lrt"]), "torture", &files);
    install(Path::new(env!("CARGO_BIN_EXE_cloner-test-embedder")), "embedder", &files);
    let beside = program.with_file_name("libredclone.so");
    let library =
        if beside.exists() { beside } else { program.parent().expect("a directory").join("../lib/libredclone.so") };
    install(&library, "libredclone.so", &files);
    std::fs::write(files.join("init"), INIT.replace("STEPS", "12")).expect("the disk has room");
    sh("chmod 755 init bin/*; find . | cpio --quiet -o -H newc > ../initramfs", &files);
    let console = Command::new("timeout")
        .args(["240", "qemu-system-x86_64", "-M", "pc", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"])
        .args(["-m", "768", "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-kernel"])
        .arg(&machine.kernel)
        .arg("-initrd")
        .arg(directory.path().join("initramfs"))
        .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"])
        .stdin(Stdio::null())
        .output()
        .expect("qemu starts");
    let console = String::from_utf8_lossy(&console.stdout).into_owned();
    let result = |what: &str| {
        let line = console.lines().find_map(|line| line.split_once("result ")?.1.strip_prefix(what));
        line.unwrap_or_else(|| panic!("no result {what:?}; the console shows: {console}")).trim().to_owned()
    };
    // The kernel is too old for write protection, and reports so when asked for it.
    assert!(result("write-protect").starts_with("10 "), "{console}");
    for (how, port) in [("auto", 7777), ("soft-dirty", 7778)] {
        let line = result(how);
        assert!(line.starts_with("0 ") && line.contains(r#""tracking":"soft-dirty""#), "{console}");
        assert_eq!(result(&format!("same {port}")), "", "{console}");
    }
    // Threads are stopped in each round, and the embedder is asked for the cut alone.
    assert_eq!(result("embedder"), "before cut, in source after", "{console}");
    assert_eq!(result("copy-7779"), "before cut, in copy after", "{console}");
}
