//! Pages in a headless Chromium: what the console says, what is asked of the network, the DOM.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// What a browser did with a page.
pub struct Opened {
    /// What was said to the console.
    pub console: Vec<String>,
    /// First lines of requests to the network, that of the browser itself left out.
    pub requests: Vec<String>,
    pub dom: String,
}

/// Hosts that a browser asks of its own accord.
const ITS_OWN: [&str; 3] = ["google", "gstatic", "gvt1"];

/// Opens a page, or says that there is no browser here. `BITPROOF_CHROMIUM` names another one.
pub fn open(page: &Path) -> Option<Opened> {
    let named = std::env::var("BITPROOF_CHROMIUM").ok();
    let browser = named.unwrap_or_else(|| "chromium".to_string());
    if Command::new(&browser).arg("--version").output().is_err() {
        eprintln!("not tested: no `{browser}` here (BITPROOF_CHROMIUM names one)");
        return None;
    }
    // Every request goes to a proxy of ours, which answers none.
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = proxy.local_addr().expect("its address");
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in proxy.incoming().flatten() {
            if sender.send(first_line(stream)).is_err() {
                return;
            }
        }
    });
    let profile = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(&browser);
    command
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args([
            "--disable-sync",
            "--disable-extensions",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--enable-logging=stderr",
            "--dump-dom",
            "--virtual-time-budget=3000",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--proxy-server=http://{address}"))
        .arg("--proxy-bypass-list=<-loopback>")
        .arg(format!("file://{}", page.display()));
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let (dom, talk) = ended_in_time(child.expect("the browser starts"));
    assert!(dom.contains("<html"), "the browser shows no page: {talk}");
    let console = talk.lines().filter(|line| line.contains(":CONSOLE"));
    let is_ours = |line: &String| !ITS_OWN.iter().any(|host| line.contains(host));
    Some(Opened {
        console: console.map(str::to_string).collect(),
        requests: requests.try_iter().filter(is_ours).collect(),
        dom,
    })
}

fn first_line(mut stream: TcpStream) -> String {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let mut bytes = [0; 1024];
    let count = stream.read(&mut bytes).unwrap_or(0);
    let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let text = String::from_utf8_lossy(&bytes[..count]);
    text.lines().next().unwrap_or("").to_string()
}

/// Standard output and error of a browser that ends within a minute.
fn ended_in_time(mut child: Child) -> (String, String) {
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = read(Box::new(child.stdout.take().expect("its output")));
    let talk = read(Box::new(child.stderr.take().expect("its talk")));
    for _ in 0..600 {
        if child.try_wait().expect("its state").is_some() {
            let text = |thread: std::thread::JoinHandle<String>| thread.join().expect("text");
            return (text(out), text(talk));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = child.kill();
    panic!("the browser did not end within a minute");
}
