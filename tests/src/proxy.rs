//! A network between a client and the MongoDB server that loses replies, cuts connections or is away on demand.

use std::{
    collections::{HashMap, HashSet},
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bson::{Document, RawDocument};
use mongodb::options::{ClientOptions, ServerAddress};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, watch},
    task::JoinHandle,
};

/// Stands between clients and a server while it lives.
pub struct Proxy {
    address: SocketAddr,
    network: Arc<Network>,
    listening: JoinHandle<()>,
}

/// What all connections share.
#[derive(Default)]
struct Network {
    losses: Mutex<Losses>,
    gate: watch::Sender<Gate>,
    /// How many requests wait at it.
    waiting: AtomicUsize,
    cut: Notify,
    open: AtomicUsize,
    away: AtomicBool,
    /// Whether the server says of itself that it stands alone.
    standalone: AtomicBool,
}

/// Where requests wait.
#[derive(Default)]
struct Gate {
    /// The command whose requests have to.
    command: Option<String>,
    /// How often it was opened.
    opened: usize,
}

/// Which replies are to be lost, and how many were.
#[derive(Default)]
struct Losses {
    to_come: HashMap<String, usize>,
    happened: usize,
}

impl Proxy {
    /// A proxy for the server of these options, which are changed to lead to it.
    ///
    /// # Panics
    /// If no port is free, or the options name no host.
    pub async fn before(options: &mut ClientOptions) -> Self {
        let server = options
            .hosts
            .first()
            .expect("options name a host")
            .to_string();
        let proxy = Self::to(server).await;
        options.hosts = vec![ServerAddress::from(proxy.address)];
        options.direct_connection = Some(true);
        options.repl_set_name = None;
        proxy
    }

    /// A proxy for the server at that address.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let network = Arc::<Network>::default();
        let listening = tokio::spawn(listen(listener, server, Arc::clone(&network)));
        Self {
            address,
            network,
            listening,
        }
    }

    /// Where clients connect to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the server says of itself what one without a replica set says; to the driver and to the store it is one. It does not refuse
    /// what such a server refuses.
    pub fn pretend_standalone(&self) {
        self.network.standalone.store(true, Ordering::SeqCst);
    }

    /// Closes all connections that there are, with whatever is on its way, and says how many there were.
    pub fn cut(&self) -> usize {
        let open = self.open();
        self.network.cut.notify_waiters();
        open
    }

    /// How many connections there are.
    pub fn open(&self) -> usize {
        self.network.open.load(Ordering::SeqCst)
    }

    /// From now on there is no way to the server, or there is one again.
    pub fn away(&self, away: bool) {
        self.network.away.store(away, Ordering::SeqCst);
        if away {
            self.cut();
        }
    }

    /// Lets the server carry out the next commands of that name, and closes the connection where their replies would come.
    pub fn lose_replies(&self, command: &str, times: usize) {
        lock(&self.network.losses)
            .to_come
            .insert(command.to_owned(), times);
    }

    /// From now on requests of that name wait on their way, until they are let pass. What their senders do meanwhile changes nothing.
    pub fn hold(&self, command: &str) {
        let command = Some(command.to_owned());
        self.network.gate.send_modify(|gate| gate.command = command);
    }

    /// Those that wait go on waiting; others pass.
    pub fn hold_no_more(&self) {
        self.network.gate.send_modify(|gate| gate.command = None);
    }

    /// How many requests wait.
    pub fn held(&self) -> usize {
        self.network.waiting.load(Ordering::SeqCst)
    }

    /// Lets all requests pass.
    pub fn let_pass(&self) {
        self.network.gate.send_modify(|gate| {
            gate.command = None;
            gate.opened += 1;
        });
    }

    /// How many replies were lost.
    pub fn lost(&self) -> usize {
        lock(&self.network.losses).happened
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

fn lock(losses: &Mutex<Losses>) -> MutexGuard<'_, Losses> {
    losses.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(listener: TcpListener, server: String, network: Arc<Network>) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, network) = (server.clone(), Arc::clone(&network));
        tokio::spawn(async move {
            let mut cut = std::pin::pin!(network.cut.notified());
            // From here on no cut is missed: one that came before has set `away`, or has closed what there was.
            cut.as_mut().enable();
            if network.away.load(Ordering::SeqCst) {
                return;
            }
            network.open.fetch_add(1, Ordering::SeqCst);
            tokio::select! {
                // Whatever ends it, both sides are closed.
                _ended = connect(client, &server, &network) => {}
                () = cut => {}
            }
            network.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn connect(client: TcpStream, server: &str, network: &Network) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let doomed = Arc::<Mutex<HashSet<i32>>>::default();
    tokio::select! {
        ended = requests(from_client, to_server, network, Arc::clone(&doomed)) => ended,
        ended = replies(from_server, to_client, network, Arc::clone(&doomed)) => ended,
    }
}

async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    network: &Network,
    doomed: Arc<Mutex<HashSet<i32>>>,
) -> io::Result<()> {
    let mut gate = network.gate.subscribe();
    loop {
        let message = read_message(&mut client).await?;
        let name = command(&message);
        let held_at = {
            let gate = gate.borrow_and_update();
            let is_held = name.is_some() && gate.command == name;
            is_held.then_some(gate.opened)
        };
        if let Some(opened) = held_at {
            network.waiting.fetch_add(1, Ordering::SeqCst);
            let passes = gate.wait_for(|gate| gate.opened > opened).await;
            passes.map_err(io::Error::other)?;
            network.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(name) = name
            && let Some(times) = lock(&network.losses)
                .to_come
                .get_mut(&name)
                .filter(|times| **times > 0)
        {
            *times -= 1;
            doomed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(number(&message, 4));
        }
        server.write_all(&message).await?;
    }
}

async fn replies(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    network: &Network,
    doomed: Arc<Mutex<HashSet<i32>>>,
) -> io::Result<()> {
    loop {
        let mut message = read_message(&mut server).await?;
        if doomed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&number(&message, 8))
        {
            lock(&network.losses).happened += 1;
            return Ok(());
        }
        if network.standalone.load(Ordering::SeqCst) {
            message = alone(message).map_err(io::Error::other)?;
        }
        client.write_all(&message).await?;
    }
}

/// A message begins with its length, its number, and the number of that which it answers.
async fn read_message(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut message = vec![0; 16];
    from.read_exact(&mut message).await?;
    let length = usize::try_from(number(&message, 0)).map_err(io::Error::other)?;
    message.resize(length.max(16), 0);
    from.read_exact(&mut message[16..]).await?;
    Ok(message)
}

fn number(message: &[u8], at: usize) -> i32 {
    message
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, i32::from_le_bytes)
}

/// Where the document of a message of the present kind, `OP_MSG`, begins: behind the flags.
const DOCUMENT: usize = 16 + 4 + 1;

fn document(message: &[u8]) -> Option<&RawDocument> {
    const OP_MSG: i32 = 2013;
    if number(message, 12) != OP_MSG || message.get(DOCUMENT - 1) != Some(&0) {
        return None;
    }
    let length = usize::try_from(number(message, DOCUMENT)).ok()?;
    RawDocument::from_bytes(message.get(DOCUMENT..DOCUMENT + length)?).ok()
}

/// The name of the command in a message: the first key of its document.
fn command(message: &[u8]) -> Option<String> {
    let (name, _) = document(message)?.iter().next()?.ok()?;
    Some(name.as_str().to_owned())
}

/// What the server says of itself, without all that only a member of a replica set says. Other replies stay as they are.
fn alone(message: Vec<u8>) -> Result<Vec<u8>, bson::error::Error> {
    const OF_A_SET: [&str; 9] = [
        "setName",
        "setVersion",
        "hosts",
        "primary",
        "secondary",
        "me",
        "electionId",
        "lastWrite",
        "topologyVersion",
    ];
    let Some(said) = document(&message) else {
        return Ok(message);
    };
    if !said
        .iter_elements()
        .flatten()
        .any(|element| element.key() == "maxWireVersion")
    {
        return Ok(message);
    }
    let mut said = Document::try_from(said)?;
    for name in OF_A_SET {
        said.remove(name);
    }
    let mut changed = message[..DOCUMENT].to_vec();
    changed.extend(said.to_vec()?);
    let length = i32::try_from(changed.len()).unwrap_or(i32::MAX);
    changed[..4].copy_from_slice(&length.to_le_bytes());
    Ok(changed)
}
