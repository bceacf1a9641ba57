package measure

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// A relay is a proxy between an engine and PostgreSQL that counts traffic.
type relay struct {
	url      string // of the database, through the relay
	listener net.Listener
	network  string // of the server
	address  string
	trips    atomic.Int64 // responses that ended with "ready for query"
	bytes    atomic.Int64 // in both directions
}

func startRelay(database string) (*relay, error) {
	config, err := pgconn.ParseConfig(database)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(database)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("count round trips: the database must be given as a URL with a host: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u.Host = listener.Addr().String()
	query := u.Query()
	query.Set("sslmode", "disable") // encrypted messages cannot be counted
	u.RawQuery = query.Encode()
	r := &relay{url: u.String(), listener: listener}
	r.network, r.address = pgconn.NetworkAddress(config.Host, config.Port)
	go r.serve()
	return r, nil
}

func (r *relay) close() { _ = r.listener.Close() }

func (r *relay) serve() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		go r.pass(client)
	}
}

// pass copies data in both directions until either side closes.
func (r *relay) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := new(net.Dialer).DialContext(context.Background(), r.network, r.address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		n, _ := io.Copy(server, client)
		r.bytes.Add(n)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, io.TeeReader(server, &answers{relay: r}))
}

// answers parses the server's messages on one connection. A message consists of a letter, a length
// and the content.
type answers struct {
	relay *relay
	head  [5]byte
	have  int // bytes of head
	skip  int // remaining bytes of the message
}

func (a *answers) Write(p []byte) (int, error) {
	n := len(p)
	a.relay.bytes.Add(int64(n))
	for len(p) > 0 {
		if a.skip > 0 {
			some := min(a.skip, len(p))
			a.skip -= some
			p = p[some:]
			continue
		}
		some := copy(a.head[a.have:], p)
		a.have += some
		p = p[some:]
		if a.have == len(a.head) {
			a.message()
		}
	}
	return n, nil
}

func (a *answers) message() {
	const readyForQuery = 'Z'
	if a.head[0] == readyForQuery {
		a.relay.trips.Add(1)
	}
	a.skip = int(binary.BigEndian.Uint32(a.head[1:])) - 4 // the length includes itself
	a.have = 0
}
