//! A server of HTTP on this machine, for tests of remote stores, which can fail in the ways that servers do.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use super::Map;
use crate::store::{Storage, Value};

/// The answer to a request, other than the value that is asked for.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The status, further lines of the header, and the body.
    Status(&'static str, &'static str, &'static str),
    /// Half of the value; the first is true if it has an `ETag`.
    Cut(bool),
    /// The value, with this length in the header.
    Length(usize),
    /// The value, without an `ETag`.
    Plain,
    /// The whole value in place of a range.
    Whole,
    /// A refusal of HEAD, as of a signature for GET alone.
    NoHead,
    /// Nothing, ever.
    Hang,
}

/// A server of values on loopback. It ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// The URL of the server, without a slash at its end.
    pub url: String,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    values: Map,
    faults: Mutex<Vec<(String, Answer, usize)>>,
    requests: Mutex<Vec<String>>,
    denies_absent: AtomicBool,
    is_over: AtomicBool,
}

impl Server {
    /// Serves the files of a folder, as they are now.
    pub fn of(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { values: Map::of(folder), ..Shared::default() });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if own.is_over.load(Relaxed) {
                    break;
                }
                let shared = Arc::clone(&own);
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self { url, shared }
    }

    /// Sets a value.
    pub fn set(&self, key: &str, value: impl AsRef<[u8]>) {
        self.shared.values.set(key, value);
    }

    /// Answers the next `times` requests for a key in another way. Answers of one key are given in this order.
    pub fn answer(&self, key: &str, answer: Answer, times: usize) {
        self.shared.faults.lock().unwrap().push((key.to_owned(), answer, times));
    }

    /// Denies what is not there, as S3 does to those who may not list a bucket.
    pub fn deny_absent(&self) {
        self.shared.denies_absent.store(true, Relaxed);
    }

    /// Returns the requests since the last call: each method, the path and query, and the range.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.requests.lock().unwrap())
    }

    /// Returns the requests since the last call of [`requests`](Self::requests).
    pub fn seen(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        drop(TcpStream::connect(self.url.trim_start_matches("http://")));
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        while let Some(first) = lines.next() {
            let header: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            if !self.answer(&stream, &first, &header) {
                return drop(stream.shutdown(std::net::Shutdown::Both));
            }
        }
    }

    /// Answers one request. Returns false if the connection is to end.
    fn answer(&self, mut stream: &TcpStream, first: &str, header: &[String]) -> bool {
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap_or("/"));
        let key = path.split('?').next().unwrap().trim_start_matches('/').to_owned();
        let range = header.iter().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("range").then(|| value.trim_start_matches("bytes=").to_owned())
        });
        let request = format!("{method} {path} {}", range.as_deref().unwrap_or_default());
        self.requests.lock().unwrap().push(request.trim_end().to_owned());
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            let fault = faults.iter_mut().find(|(of, _, times)| *of == key && *times > 0);
            fault.map(|(_, answer, times)| {
                *times -= 1;
                answer.clone()
            })
        };
        let Ok(Value::Bytes(value)) = self.values.get(&key, u64::MAX) else {
            let is_denied = self.denies_absent.load(Relaxed);
            return send(&mut stream, if is_denied { "403 Forbidden" } else { "404 Not Found" }, "", b"", 0);
        };
        let (mut status, mut lines, mut body) = ("200 OK", String::new(), &value[..]);
        if let Some((start, end)) = range.as_deref().and_then(|range| range.split_once('-'))
            && !matches!(fault, Some(Answer::Whole))
        {
            let [start, end] = [start, end].map(|text| text.parse::<usize>().unwrap());
            let end = value.len().min(end + 1);
            (status, body) = ("206 Partial Content", &value[start..end]);
            write!(lines, "Content-Range: bytes {start}-{}/{}\r\n", end - 1, value.len()).unwrap();
        }
        if !matches!(fault, Some(Answer::Plain | Answer::Cut(false) | Answer::Length(_))) {
            let sum = value.iter().fold(7u64, |sum, byte| sum * 31 % 65_537 + u64::from(*byte));
            write!(lines, "ETag: \"{sum}\"\r\n").unwrap();
        }
        match fault {
            Some(Answer::Hang) => {
                while !self.is_over.load(Relaxed) {
                    thread::sleep(Duration::from_millis(10));
                }
                false
            }
            Some(Answer::Status(status, lines, body)) => {
                send(&mut stream, status, lines, body.as_bytes(), body.len())
            }
            Some(Answer::Cut(_)) => {
                send(&mut stream, status, &lines, &body[..body.len() / 2], body.len());
                false
            }
            Some(Answer::Length(length)) => {
                send(&mut stream, status, &lines, body, length);
                false
            }
            Some(Answer::NoHead) if method == "HEAD" => send(&mut stream, "403 Forbidden", "", b"", 0),
            _ if method == "HEAD" => send(&mut stream, status, &lines, b"", body.len()),
            _ => send(&mut stream, status, &lines, body, body.len()),
        }
    }
}

fn send(stream: &mut &TcpStream, status: &str, lines: &str, body: &[u8], length: usize) -> bool {
    let header = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{lines}\r\n");
    stream.write_all(&[header.as_bytes(), body].concat()).is_ok()
}
