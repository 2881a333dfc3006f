//! A page in a headless Chromium that is asked and steered over its DevTools protocol: keys are
//! pressed as a keyboard presses them, which no script in a page can do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser, which ends with it, whatever becomes of a test.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An open page.
pub struct Page {
    _browser: Browser,
    socket: TcpStream,
    asked: u64,
    _profile: tempfile::TempDir,
}

impl Page {
    /// Opens a file, or says that there is no browser here. `BITPROOF_CHROMIUM` names another one.
    pub fn open(file: &Path) -> Option<Page> {
        let named = std::env::var("BITPROOF_CHROMIUM").ok();
        let browser = named.unwrap_or_else(|| "chromium".to_string());
        if Command::new(&browser).arg("--version").output().is_err() {
            eprintln!("not tested: no `{browser}` here (BITPROOF_CHROMIUM names one)");
            return None;
        }
        let profile = tempfile::tempdir().expect("a folder");
        let flags = "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-sync \
                     --disable-background-networking --disable-component-update \
                     --disable-extensions --disable-dev-shm-usage --remote-debugging-port=0 \
                     --proxy-server=http://127.0.0.1:9 --window-size=900,600";
        let child = Command::new(&browser)
            .args(flags.split_whitespace())
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("file://{}", file.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Browser)
            .expect("the browser starts");
        let port = port_in(profile.path());
        let mut page = Page {
            _browser: child,
            socket: connected(&port),
            asked: 0,
            _profile: profile,
        };
        let is_loaded = "document.readyState === 'complete' && location.protocol === 'file:'";
        let begun = Instant::now();
        while page.evaluate(is_loaded) != true {
            assert!(begun.elapsed() < PATIENCE, "the page is not there in time");
            std::thread::sleep(Duration::from_millis(50));
        }
        page.call(
            "Emulation.setFocusEmulationEnabled",
            &json!({ "enabled": true }),
        );
        Some(page)
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &asked);
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].clone()
    }

    /// Presses Tab; with Shift where `is_back`.
    pub fn tab(&mut self, is_back: bool) {
        for kind in ["rawKeyDown", "keyUp"] {
            let mut key = json!({ "type": kind, "key": "Tab", "code": "Tab" });
            key["windowsVirtualKeyCode"] = 9.into();
            key["modifiers"] = if is_back { 8 } else { 0 }.into();
            self.call("Input.dispatchKeyEvent", &key);
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let asked = json!({ "id": self.asked, "method": method, "params": params });
        send(&mut self.socket, asked.to_string().as_bytes());
        loop {
            let answer: Value = serde_json::from_slice(&received(&mut self.socket)).expect("JSON");
            if answer["id"] == self.asked {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }
}

/// The port that the browser has chosen, which it writes down.
fn port_in(profile: &Path) -> String {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(profile.join("DevToolsActivePort"));
        let text = text.unwrap_or_default();
        if let Some((port, _)) = text.split_once('\n') {
            return port.to_string();
        }
        assert!(begun.elapsed() < PATIENCE, "the browser tells no port");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A WebSocket (RFC 6455) to the first page.
fn connected(port: &str) -> TcpStream {
    let begun = Instant::now();
    let path = loop {
        let targets: Value = serde_json::from_str(&body(port, "/json/list")).unwrap_or_default();
        let targets = targets.as_array().cloned().unwrap_or_default();
        let page = targets.iter().find(|target| target["type"] == "page");
        let address = page.and_then(|page| page["webSocketDebuggerUrl"].as_str());
        if let Some((_, path)) = address.and_then(|address| address.split_once("/devtools")) {
            break format!("/devtools{path}");
        }
        assert!(begun.elapsed() < PATIENCE, "the browser has no page");
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut socket = dialled(port);
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).expect("it takes it");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    assert!(
        head.starts_with(b"HTTP/1.1 101"),
        "{}",
        String::from_utf8_lossy(&head)
    );
    socket
}

fn dialled(port: &str) -> TcpStream {
    let socket = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    socket
}

fn body(port: &str, path: &str) -> String {
    let mut socket = dialled(port);
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    socket.write_all(request.as_bytes()).expect("it takes it");
    let mut answer = Vec::new();
    let mut some = [0; 4096];
    // It may keep the connection: an object of JSON has an end of its own.
    while let Ok(count @ 1..) = socket.read(&mut some) {
        answer.extend_from_slice(&some[..count]);
        if answer.trim_ascii_end().ends_with(b"]") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split_once("\r\n\r\n")
        .map_or(String::new(), |(_, body)| body.to_string())
}

/// One text frame, masked (with zeros) as a client's must be.
fn send(socket: &mut TcpStream, text: &[u8]) {
    let mut frame = vec![0x81];
    match text.len() {
        short @ 0..=125 => frame.push(0x80 | short as u8),
        long => {
            frame.push(0x80 | 126);
            let long = u16::try_from(long).expect("a short request");
            frame.extend_from_slice(&long.to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(text);
    socket.write_all(&frame).expect("it takes it");
}

/// The text of the next frame.
fn received(socket: &mut TcpStream) -> Vec<u8> {
    let mut start = [0; 2];
    socket.read_exact(&mut start).expect("an answer in time");
    let mut length = u64::from(start[1] & 0x7f);
    if length >= 126 {
        let mut bytes = [0; 8];
        let from = if length == 126 { 6 } else { 0 };
        socket.read_exact(&mut bytes[from..]).expect("its length");
        length = u64::from_be_bytes(bytes);
    }
    let mut text = vec![0; length as usize];
    socket.read_exact(&mut text).expect("all of it");
    text
}
