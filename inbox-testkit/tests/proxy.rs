//! The proxy counts what goes over the wire, and cuts exactly where it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use inbox_testkit::proxy::{Counts, Proxy};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A server that answers each line with the same line, and tells what it had of each connection.
struct Echo {
    address: SocketAddr,
    heard: mpsc::Receiver<String>,
}

impl Echo {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (tell, heard) = mpsc::channel();
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let tell = tell.clone();
                // Tells first and closes then, so that whoever sees the end can know what was heard.
                std::thread::spawn(move || tell.send(echo(&mut client)));
            }
        });
        Ok(Self { address, heard })
    }

    /// All that the server had of the connection that ended next.
    fn heard(&self) -> Result<String> {
        Ok(self.heard.recv_timeout(Duration::from_secs(10))?)
    }
}

/// Answers whole lines only, all that came together at once; a real server does not answer half a request.
fn echo(client: &mut TcpStream) -> String {
    let (mut heard, mut answered) = (Vec::new(), 0);
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        heard.extend_from_slice(&buffer[..length]);
        let lines = heard.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if lines > answered && client.write_all(&heard[answered..lines]).is_err() {
            break;
        }
        answered = lines;
    }
    String::from_utf8_lossy(&heard).into_owned()
}

struct Client(TcpStream);

impl Client {
    fn connect(proxy: &Proxy) -> Result<Self> {
        let stream = TcpStream::connect(proxy.address())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self(stream))
    }

    fn send(&mut self, text: &str) -> Result {
        Ok(self.0.write_all(text.as_bytes())?)
    }

    fn receive(&mut self, expected: &str) -> Result {
        let mut answer = vec![0; expected.len()];
        self.0.read_exact(&mut answer)?;
        assert_eq!(String::from_utf8_lossy(&answer), expected);
        Ok(())
    }

    /// What still comes until the connection ends, by an end of the stream or a reset.
    fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        if let Err(error) = self.0.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        String::from_utf8_lossy(&rest).into_owned()
    }
}

fn sent(proxy: &Proxy) -> Vec<String> {
    proxy.trips().iter().map(|trip| String::from_utf8_lossy(&trip.sent).into_owned()).collect()
}

#[test]
fn a_round_trip_is_what_a_client_sends_until_the_server_answers() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    let mut client = Client::connect(&proxy)?;

    client.send("one\n")?;
    client.receive("one\n")?;
    client.send("two\nthree\n")?;
    client.receive("two\nthree\n")?;
    client.send("fo")?;
    std::thread::sleep(Duration::from_millis(20)); // two packets, for sure
    client.send("ur\n")?;
    client.receive("four\n")?;

    assert_eq!(sent(&proxy), ["one\n", "two\nthree\n", "four\n"]);
    assert_eq!(proxy.round_trips(), 3);
    let Counts { connections, bytes_to_server, bytes_to_client, .. } = proxy.counts();
    assert_eq!((connections, bytes_to_server, bytes_to_client), (1, 19, 19));
    Ok(())
}

#[test]
fn connections_count_apart_and_a_reset_counts_from_nothing() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    let mut clients = [Client::connect(&proxy)?, Client::connect(&proxy)?];
    for client in &mut clients {
        client.send("a\n")?;
    }
    for client in &mut clients {
        client.receive("a\n")?;
    }
    assert_eq!(proxy.round_trips(), 2);
    assert_eq!(proxy.counts().connections, 2);

    proxy.reset();
    assert_eq!(proxy.counts(), Counts::default());
    clients[1].send("b\n")?;
    clients[1].receive("b\n")?;
    assert_eq!(sent(&proxy), ["b\n"]);
    assert_eq!(proxy.counts().connections, 0, "both were opened before");
    Ok(())
}

#[tokio::test]
async fn cut_before_the_server_sees_nothing_of_the_packet() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    let (mut client, mut other) = (Client::connect(&proxy)?, Client::connect(&proxy)?);
    client.send("begin\n")?;
    client.receive("begin\n")?;

    let mut cut = proxy.cut_before("COMMIT");
    client.send("insert\n")?;
    client.receive("insert\n")?;
    assert!(!cut.has_fired());
    client.send("COMMIT\n")?;

    assert!(cut.fired().await);
    assert_eq!(client.rest(), "");
    assert_eq!(echo.heard()?, "begin\ninsert\n");
    other.send("COMMIT\n")?;
    other.receive("COMMIT\n")?; // it happened once, on one connection
    Ok(())
}

#[tokio::test]
async fn cut_after_the_server_has_it_all_and_the_client_no_answer() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    let mut client = Client::connect(&proxy)?;
    client.send("begin\n")?;
    client.receive("begin\n")?;

    let mut cut = proxy.cut_after("COMMIT");
    client.send("COMMIT\n")?;

    assert!(cut.fired().await);
    assert_eq!(client.rest(), "");
    assert_eq!(echo.heard()?, "begin\nCOMMIT\n");
    Ok(())
}

#[tokio::test]
async fn a_client_that_sees_the_cut_finds_the_server_done() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    for (text, heard) in [("early", ""), ("late", "late\n")] {
        let mut client = Client::connect(&proxy)?;
        let _armed = if text == "early" { proxy.cut_before(text) } else { proxy.cut_after(text) };
        client.send(&format!("{text}\n"))?;
        assert_eq!(client.rest(), "");
        assert_eq!(echo.heard.try_recv()?, heard, "the server has ended already");
    }
    Ok(())
}

#[tokio::test]
async fn a_cut_that_never_happens_is_told_apart() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    let mut cut = proxy.cut_before("COMMIT");
    drop(proxy);
    assert!(!cut.fired().await);
    Ok(())
}

#[test]
fn refused_clients_meet_a_closed_port_and_are_accepted_again() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    let mut open = Client::connect(&proxy)?;

    proxy.refuse()?;
    let refused = TcpStream::connect(proxy.address()).map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(std::io::ErrorKind::ConnectionRefused));
    open.send("still here\n")?;
    open.receive("still here\n")?;

    proxy.accept()?;
    let mut again = Client::connect(&proxy)?;
    again.send("back\n")?;
    again.receive("back\n")?;
    Ok(())
}

#[test]
fn cut_all_ends_every_connection() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    let mut client = Client::connect(&proxy)?;
    client.send("one\n")?;
    client.receive("one\n")?;

    proxy.cut_all()?;
    assert_eq!(client.rest(), "");
    assert_eq!(echo.heard()?, "one\n");
    Ok(())
}

#[test]
fn a_delay_holds_a_packet_back_each_way() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    let mut client = Client::connect(&proxy)?;
    proxy.delay(Duration::from_millis(30));
    let start = Instant::now();
    client.send("slow\n")?;
    client.receive("slow\n")?;
    assert!(start.elapsed() >= Duration::from_millis(60), "{:?}", start.elapsed());
    Ok(())
}

#[test]
fn a_client_that_has_said_all_still_gets_its_answer() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    let mut client = Client::connect(&proxy)?;
    client.send("last\n")?;
    client.0.shutdown(Shutdown::Write)?;
    assert_eq!(client.rest(), "last\n");
    Ok(())
}

#[test]
fn more_than_the_buffers_hold_passes_both_ways_at_once() -> Result {
    let echo = Echo::start()?;
    let proxy = Proxy::start(echo.address)?;
    let client = Client::connect(&proxy)?;
    let text = format!("{}\n", "x".repeat(63)).repeat(1 << 16);
    let mut writer = client.0.try_clone()?;
    let sent = text.clone();
    let writing = std::thread::spawn(move || writer.write_all(sent.as_bytes()));
    Client(client.0).receive(&text)?;
    writing.join().map_err(|_| "the writer panicked")??;
    assert_eq!(proxy.counts().bytes_to_client, text.len() as u64);
    Ok(())
}

#[test]
fn it_outlives_the_runtime_that_it_was_started_in() -> Result {
    let echo = Echo::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let proxy = runtime.block_on(async { Proxy::start(echo.address.to_string()) })?;
    drop(runtime);
    let mut client = Client::connect(&proxy)?;
    client.send("hello\n")?;
    client.receive("hello\n")?;
    drop(proxy);
    assert_eq!(client.rest(), "");
    Ok(())
}

#[test]
fn a_server_that_is_not_there_closes_the_connection() -> Result {
    let nobody = Proxy::start(Echo::start()?.address)?;
    nobody.refuse()?;
    let proxy = Proxy::start(nobody.address())?;
    assert_eq!(Client::connect(&proxy)?.rest(), "");
    Ok(())
}

#[test]
fn a_url_is_led_through_the_proxy() -> Result {
    let echo = Echo::start()?;
    let url = format!("postgres://me:secret@{}/shop?sslmode=disable", echo.address);
    let proxy = Proxy::in_front_of(&url)?;
    let through = proxy.url(&url)?;
    assert_eq!(through, format!("postgres://me:secret@{}/shop?sslmode=disable", proxy.address()));

    let mut client = Client::connect(&proxy)?;
    client.send("there\n")?;
    client.receive("there\n")?;
    assert!(Proxy::in_front_of("sqlite:inbox.db").is_err());
    Ok(())
}
