//! [`Proxy`]: stands between a client and its server, counts round trips, and cuts connections.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc as blocking};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// A TCP proxy on the loopback interface, in front of a server of any kind.
///
/// ```no_run
/// # async fn example(url: &str) -> std::io::Result<()> {
/// use inbox_testkit::proxy::Proxy;
///
/// let proxy = Proxy::in_front_of(url)?;
/// let through_proxy = proxy.url(url)?; // what the code under test connects to
///
/// proxy.reset();
/// // … use the connection …
/// println!("{} round trips: {:#?}", proxy.round_trips(), proxy.trips());
///
/// let mut cut = proxy.cut_after("COMMIT"); // the server commits, the client never hears of it
/// // … commit …
/// assert!(cut.fired().await);
/// # Ok(())
/// # }
/// ```
///
/// It runs in a thread of its own, so it outlives the runtime that it was started in, and ends when
/// it is dropped, with all its connections. It reads no protocol and sees nothing inside TLS: turn
/// that off on the way to it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    wire: Arc<Wire>,
    /// Taken by `drop` alone.
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of a server, given as a `SocketAddr` or as `"host:port"`.
    ///
    /// # Errors
    ///
    /// If the name has no address, or there is no free port or thread. A server that does not answer
    /// is no error: each connection through the proxy is then closed.
    pub fn start(upstream: impl ToSocketAddrs) -> io::Result<Self> {
        let upstream: Vec<SocketAddr> = upstream.to_socket_addrs()?.collect();
        let reserved = reusable(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = reserved.local_addr()?;
        let wire = Arc::new(Wire { upstream, record: Mutex::default() });
        let (commands, orders) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new().name("inbox-proxy".to_owned()).spawn({
            let wire = Arc::clone(&wire);
            move || {
                let _reserved = reserved;
                run(address, wire, orders);
            }
        })?;
        let proxy = Self { address, wire, commands: Some(commands), thread: Some(thread) };
        proxy.accept()?;
        Ok(proxy)
    }

    /// Starts a proxy in front of the server that a database's URL names.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), and [`io::ErrorKind::InvalidInput`] if the URL names no host (such
    /// as one of a local socket), or no port and is not of a known scheme.
    pub fn in_front_of(url: &str) -> io::Result<Self> {
        let server = &url[Authority::find(url)?.server];
        if server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            return Self::start(server);
        }
        let port = match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => 5432,
            Some("mysql" | "mariadb") => 3306,
            Some("redis" | "rediss") => 6379,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "the URL names no port")),
        };
        Self::start(format!("{server}:{port}"))
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A database's URL with the proxy's host and port in place of the server's. The rest is kept,
    /// a `?host=` too.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if it names no host, such as one of a local socket.
    pub fn url(&self, url: &str) -> io::Result<String> {
        let Authority { server } = Authority::find(url)?;
        Ok(format!("{}{}{}", &url[..server.start], self.address, &url[server.end..]))
    }

    /// How many round trips there were since the start or the last [`reset`](Self::reset).
    ///
    /// One round trip is all that a client sends until the server answers. So pipelined requests
    /// are one, and a request whose answer nobody waits for is one of its own if an answer was there
    /// before it.
    pub fn round_trips(&self) -> usize {
        self.wire.record().trips.len()
    }

    /// What the client sent in each round trip, in their order, over all connections.
    pub fn trips(&self) -> Vec<Trip> {
        self.wire.record().trips.clone()
    }

    /// All that is counted since the start or the last [`reset`](Self::reset).
    pub fn counts(&self) -> Counts {
        let record = self.wire.record();
        Counts { round_trips: record.trips.len(), ..record.counts }
    }

    /// Counts from nothing again. A request that is on its way counts anew with its next bytes.
    pub fn reset(&self) {
        let mut record = self.wire.record();
        record.counts = Counts::default();
        record.trips.clear();
        record.speaking.clear();
    }

    /// Cuts the connection whose client next sends these bytes, **before** the server sees them.
    ///
    /// See [`Fault`] for how. An empty text is the next packet, whatever it holds.
    pub fn cut_before(&self, text: impl AsRef<[u8]>) -> Fault {
        self.arm(text.as_ref(), Moment::Before)
    }

    /// Cuts the connection whose client next sends these bytes, **after** the server has executed
    /// them and before the client has any part of the answer.
    ///
    /// See [`Fault`] for how. An empty text is the next packet, whatever it holds.
    pub fn cut_after(&self, text: impl AsRef<[u8]>) -> Fault {
        self.arm(text.as_ref(), Moment::After)
    }

    fn arm(&self, text: &[u8], moment: Moment) -> Fault {
        let (fired, watched) = watch::channel(false);
        self.wire.record().armed.push(Armed { text: text.to_owned(), moment, fired });
        Fault { fired: watched }
    }

    /// Cuts all connections at once, whatever they are doing, and returns when they are closed.
    ///
    /// # Errors
    ///
    /// None, unless the proxy's thread has failed.
    pub fn cut_all(&self) -> io::Result<()> {
        self.order(Order::CutAll)
    }

    /// Refuses new connections from now on, as a server does that is not running. Open ones stay:
    /// see [`cut_all`](Self::cut_all).
    ///
    /// # Errors
    ///
    /// None, unless the proxy's thread has failed.
    pub fn refuse(&self) -> io::Result<()> {
        self.order(Order::Refuse)
    }

    /// Accepts new connections again, on the same port.
    ///
    /// # Errors
    ///
    /// If the port cannot be listened on.
    pub fn accept(&self) -> io::Result<()> {
        self.order(Order::Accept)
    }

    /// Holds back each packet so long, on its way there and on its way back, to the millisecond.
    /// Zero, as at the start, is no delay.
    pub fn delay(&self, each_way: Duration) {
        self.wire.record().delay = each_way;
    }

    /// Blocks until the proxy's thread has done it, which is a matter of microseconds.
    fn order(&self, order: Order) -> io::Result<()> {
        let (done, reply) = blocking::channel();
        if let Some(commands) = &self.commands {
            let _ = commands.send(Command { order, done });
        }
        // A command that nobody took was dropped, and its reply with it.
        reply.recv().unwrap_or_else(|_| Err(io::Error::other("the proxy's thread has ended")))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A cut that is armed, and happens once.
///
/// It lets the server end the session before the client learns anything: the server gets the end of
/// the stream, and once it has closed the connection too, so is the client's. So when the client
/// sees its connection lost, the server's transaction is over and its locks are free: a test needs
/// no pause.
///
/// A text that is spread over packets is found as well. Those ahead of the last have been forwarded by then.
///
/// Dropping this does not disarm the cut.
#[derive(Debug)]
#[must_use = "wait for `fired`, or the test does not know that there was a fault"]
pub struct Fault {
    fired: watch::Receiver<bool>,
}

impl Fault {
    /// Waits until the connection has been cut; `false` if the proxy ended without that.
    pub async fn fired(&mut self) -> bool {
        self.fired.wait_for(|fired| *fired).await.is_ok()
    }

    /// Whether the connection has been cut: true at the latest when the client sees it lost, and so,
    /// unlike [`fired`](Self::fired), of use after the client's work to fail a test where nothing was cut.
    pub fn has_fired(&self) -> bool {
        *self.fired.borrow()
    }
}

/// What a [`Proxy`] counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections that clients have opened.
    pub connections: u64,
    /// See [`Proxy::round_trips`].
    pub round_trips: usize,
    /// Bytes that clients have sent.
    pub bytes_to_server: u64,
    /// Bytes that servers have sent.
    pub bytes_to_client: u64,
}

/// What a client sent in one round trip.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trip {
    /// The number of the connection, from 1.
    pub connection: u64,
    /// All that was sent until the server answered.
    pub sent: Vec<u8>,
}

impl Trip {
    /// Whether these bytes were sent in it.
    pub fn contains(&self, text: impl AsRef<[u8]>) -> bool {
        contains(&self.sent, text.as_ref())
    }
}

/// As text, with everything that is none escaped.
impl fmt::Debug for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} \"{}\"", self.connection, self.sent.escape_ascii())
    }
}

/// Where a URL has its host and port.
struct Authority {
    server: std::ops::Range<usize>,
}

impl Authority {
    /// The error does not quote the URL, which may hold a password.
    fn find(url: &str) -> io::Result<Self> {
        let none = || io::Error::new(io::ErrorKind::InvalidInput, "the URL names no host");
        let start = url.find("://").ok_or_else(none)? + 3;
        let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |length| start + length);
        let host = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
        if host == end { Err(none()) } else { Ok(Self { server: host..end }) }
    }
}

/// What the proxy's handle and its connections share.
#[derive(Debug)]
struct Wire {
    upstream: Vec<SocketAddr>,
    record: Mutex<Record>,
}

impl Wire {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Record {
    opened: u64,
    counts: Counts,
    trips: Vec<Trip>,
    /// The trip, by its place in `trips`, of each connection whose client spoke last.
    speaking: HashMap<u64, usize>,
    armed: Vec<Armed>,
    delay: Duration,
}

#[derive(Debug)]
struct Armed {
    text: Vec<u8>,
    moment: Moment,
    fired: watch::Sender<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Before,
    After,
}

impl Record {
    fn opened(&mut self) -> u64 {
        self.opened += 1;
        self.counts.connections += 1;
        self.opened
    }

    /// Notes a packet from the client. Answers the cut that it sets off, if any.
    fn sent(&mut self, connection: u64, packet: &[u8]) -> Option<Armed> {
        self.counts.bytes_to_server += packet.len() as u64;
        let trip = *self.speaking.entry(connection).or_insert_with(|| {
            self.trips.push(Trip { connection, sent: Vec::new() });
            self.trips.len() - 1
        });
        let sent = &mut self.trips[trip].sent;
        let before = sent.len();
        sent.extend_from_slice(packet);
        let hit = self.armed.iter().position(|cut| {
            // A text that ends in this packet may begin in an earlier one.
            let start = (before + 1).saturating_sub(cut.text.len()).min(before);
            contains(&sent[start..], &cut.text)
        })?;
        Some(self.armed.remove(hit))
    }

    /// Notes a packet from the server: what the client sends next is another round trip.
    fn answered(&mut self, connection: u64, packet: &[u8]) {
        self.counts.bytes_to_client += packet.len() as u64;
        self.speaking.remove(&connection);
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    text.is_empty() || bytes.windows(text.len()).any(|window| window == text)
}

#[derive(Debug)]
struct Command {
    order: Order,
    done: blocking::Sender<io::Result<()>>,
}

#[derive(Debug)]
enum Order {
    Accept,
    Refuse,
    CutAll,
}

/// The proxy's thread. Without a runtime it ends at once, and so every order to it is an error.
fn run(address: SocketAddr, wire: Arc<Wire>, orders: mpsc::UnboundedReceiver<Command>) {
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
        runtime.block_on(serve(address, wire, orders));
    }
}

async fn serve(address: SocketAddr, wire: Arc<Wire>, mut orders: mpsc::UnboundedReceiver<Command>) {
    let mut listener = None;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            command = orders.recv() => {
                let Some(Command { order, done }) = command else { return };
                let result = match order {
                    Order::Accept if listener.is_some() => Ok(()),
                    Order::Accept => listen(address).map(|it| listener = Some(it)),
                    Order::Refuse => listener.take().map_or(Ok(Vec::new()), close).map(|waiting| {
                        for client in waiting {
                            connections.spawn(relay(client, Arc::clone(&wire)));
                        }
                    }),
                    Order::CutAll => {
                        connections.shutdown().await;
                        Ok(())
                    }
                };
                let _ = done.send(result);
            }
            client = next_client(listener.as_ref()) => {
                connections.spawn(relay(client, Arc::clone(&wire)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A socket on a port that others of ours may use as well.
///
/// One that is bound and does not listen keeps the port ours while the proxy refuses connections.
fn reusable(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    reusable(address)?.listen(1024)
}

/// Stops listening. Answers the clients that have connected already and wait to be accepted: for
/// them the connection is open, and the system would reset it.
fn close(listener: TcpListener) -> io::Result<Vec<TcpStream>> {
    let listener = listener.into_std()?;
    let mut waiting = Vec::new();
    loop {
        match listener.accept() {
            Ok((client, _)) => {
                client.set_nonblocking(true)?;
                waiting.push(TcpStream::from_std(client)?);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(waiting),
            Err(error) => return Err(error),
        }
    }
}

async fn next_client(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            // Out of file descriptors, most likely; the client waits in the backlog.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// One connection, until either side or a fault ends it. Nobody is told how it ended but by its end.
async fn relay(mut client: TcpStream, wire: Arc<Wire>) {
    let connection = wire.record().opened();
    if let Ok(mut server) = TcpStream::connect(&*wire.upstream).await {
        // Without this a second small packet waits for the acknowledgement of the first.
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        if let Ok(Some((cut, packet))) = exchange(&mut client, &mut server, connection, &wire).await {
            let _ = end_session(&mut server, cut.moment, &packet).await;
            // In this order, so that who sees the connection lost can see why.
            cut.fired.send_replace(true);
            drop(client);
        }
    }
}

/// Forwards both ways. Answers a cut, with the packet that set it off and was not forwarded.
async fn exchange(
    client: &mut TcpStream,
    server: &mut TcpStream,
    connection: u64,
    wire: &Wire,
) -> io::Result<Option<(Armed, Vec<u8>)>> {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let questions = async {
        let mut buffer = vec![0; PACKET];
        loop {
            let packet = read(&mut from_client, &mut buffer).await?;
            if packet.is_empty() {
                // The client may still read: the server's end of the stream ends the connection.
                to_server.shutdown().await?;
                return std::future::pending().await;
            }
            let (cut, delay) = {
                let mut record = wire.record();
                (record.sent(connection, packet), record.delay)
            };
            if let Some(cut) = cut {
                return Ok(Some((cut, packet.to_owned())));
            }
            hold_back(delay).await;
            to_server.write_all(packet).await?;
        }
    };
    let answers = async {
        let mut buffer = vec![0; PACKET];
        loop {
            let packet = read(&mut from_server, &mut buffer).await?;
            if packet.is_empty() {
                return Ok(None);
            }
            let delay = {
                let mut record = wire.record();
                record.answered(connection, packet);
                record.delay
            };
            hold_back(delay).await;
            to_client.write_all(packet).await?;
        }
    };
    tokio::select! {
        end = questions => end,
        end = answers => end,
    }
}

/// The most that is forwarded at once, in bytes.
const PACKET: usize = 64 * 1024;

async fn read<'b>(from: &mut (impl AsyncReadExt + Unpin), buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    let length = from.read(buffer).await?;
    Ok(&buffer[..length])
}

/// Even a sleep of zero waits for the timer's next tick.
async fn hold_back(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

/// Lets the server come to the end of its session, and keeps all answers from the client.
async fn end_session(server: &mut TcpStream, moment: Moment, packet: &[u8]) -> io::Result<()> {
    let mut buffer = vec![0; PACKET];
    if moment == Moment::After {
        server.write_all(packet).await?;
        // A server may look for a lost client while it executes, so the end of the stream waits for an answer.
        read(server, &mut buffer).await?;
    }
    server.shutdown().await?;
    while !read(server, &mut buffer).await?.is_empty() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_its_server_after_the_password_and_before_the_path() {
        for (url, server) in [
            ("postgres://postgres@127.0.0.1:5432/db", "127.0.0.1:5432"),
            ("mysql://root:p@ss@localhost/db?ssl-mode=disabled", "localhost"),
            ("redis://[::1]:6379", "[::1]:6379"),
            ("postgres://host?user=me@home", "host"),
        ] {
            let found = Authority::find(url).map(|it| &url[it.server]);
            assert_eq!(found.ok(), Some(server), "{url}");
        }
        for url in ["", "sqlite:file", "postgres:///db", "postgres://me@/db"] {
            assert!(Authority::find(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_text_is_found_across_packets_and_only_where_it_ends() {
        let mut record = Record::default();
        let (fired, _) = watch::channel(false);
        record.armed.push(Armed { text: b"COMMIT".to_vec(), moment: Moment::Before, fired });

        assert!(record.sent(1, b"..COM").is_none());
        assert!(record.sent(2, b"MIT").is_none(), "another connection");
        assert!(record.sent(1, b"MIT").is_some());
        assert!(record.sent(1, b"COMMIT").is_none(), "it happens once");
    }

    #[test]
    fn an_old_text_does_not_set_off_a_new_cut() {
        let mut record = Record::default();
        assert!(record.sent(1, b"COMMIT").is_none());
        let (fired, _) = watch::channel(false);
        record.armed.push(Armed { text: b"COMMIT".to_vec(), moment: Moment::After, fired });
        assert!(record.sent(1, b"; next").is_none());
    }
}
