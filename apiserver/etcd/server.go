package etcd

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"net/url"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"k8s.io/klog/v2"
)

// DefaultQuota is the size in bytes that the database may reach before etcd
// raises its NOSPACE alarm and refuses writes: 8 GiB, the largest that etcd
// recommends (https://etcd.io/docs/v3.6/dev-guide/limit/#storage-size-limit).
const DefaultQuota = 8 << 30

// electionRetry is how often a member that starts asks itself to stand for
// election, until it may.
const electionRetry = time.Millisecond

// batchInterval is how long the database collects what is written before it
// commits it to its file, five times as long as by default. A write waits for a
// commit that runs; it is durable before, in the log, from which a member that
// was killed takes what the file lacks. Longer still, and reads between two
// writes would have more to copy.
const batchInterval = 500 * time.Millisecond

// Config says where the member lives and how large it may grow.
type Config struct {
	// Dir holds everything that the member writes. It is created, with
	// permissions 0700, when it does not exist.
	Dir string
	// Quota is the size limit of the database in bytes; 0 means DefaultQuota.
	Quota int64
}

// Server is a running member.
type Server struct {
	member  *embed.Etcd
	applied uint64 // entries of the log in the database before the start
	quota   int64
	socket  socket
	logs    *logCore
	failure *failure
	stop    sync.Once
}

// Start runs a member on cfg.Dir and returns when it serves reads and writes:
// after some 10 ms, more when it has a long log to replay.
//
// Logs go to the logger of ctx. Canceling ctx abandons the start; it does not
// stop a member that has started.
//
// The error names the file or directory at fault and what can be done:
// ErrInUse, ErrCorrupt, fs.ErrPermission and syscall.ENOSPC are told apart by
// errors.Is.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Quota == 0 {
		cfg.Quota = DefaultQuota
	}
	applied, err := checkDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	socket, err := newSocket(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		applied: applied,
		quota:   cfg.Quota,
		socket:  socket,
		logs:    newLogCore(klog.FromContext(ctx).WithName("etcd")),
		failure: newFailure(cfg.Dir),
	}
	if err := s.start(ctx, cfg); err != nil {
		s.Stop()
		if s.failure.err() == nil { // what the failure yields is explained already
			err = explain(cfg.Dir, err)
		}
		return nil, err
	}
	s.logs.serving.Store(true)
	return s, nil
}

// Endpoints are the addresses of the member, for --etcd-servers and for
// etcdctl.
func (s *Server) Endpoints() []string {
	u := s.socket.url()
	return []string{u.String()}
}

// Client reaches the member by function calls, without a connection. It lives
// as long as the member does; closing it is not necessary.
func (s *Server) Client() *clientv3.Client { return v3client.New(s.member.Server) }

// Failed yields one error when the member cannot go on: a full disk under its
// log, say. It is as clear as those of Start. The process should then end;
// nothing that was acknowledged is lost.
func (s *Server) Failed() <-chan error {
	return s.failure.c
}

// Check tells whether the member serves reads and writes now: it answers a
// linearizable read within ctx and has raised no alarm.
func (s *Server) Check(ctx context.Context) error {
	if err := s.failure.err(); err != nil {
		return err
	}
	for _, alarm := range s.member.Server.Alarms() {
		switch alarm.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			return fmt.Errorf("etcd refuses writes: its database has reached the quota of %d MiB; delete objects, then restart to reclaim their space", s.quota>>20)
		case etcdserverpb.AlarmType_CORRUPT:
			return errors.New("etcd refuses requests: its database is corrupt; restore a backup")
		}
	}
	if err := s.member.Server.LinearizableReadNotify(ctx); err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	return nil
}

// Stop ends the member in order and returns when all that it had is on the
// disk. Clients should have been closed before: open watches delay it by up to
// five seconds.
func (s *Server) Stop() {
	s.stop.Do(func() {
		// A member that failed has lost one of its goroutines, and Close would
		// wait for it without end. Its files are what a kill would have left.
		if s.member != nil && s.failure.err() == nil {
			// Close waits for listeners that only a ready member opens.
			if !s.logs.serving.Swap(false) {
				s.member.Server.HardStop()
			}
			s.member.Close()
		}
		s.socket.remove()
	})
}

func (s *Server) start(ctx context.Context, cfg Config) error {
	type result struct {
		member *embed.Etcd
		err    error
	}
	started := make(chan result, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				started <- result{err: &fatalError{"read the files", fmt.Errorf("%v", r)}}
			}
		}()
		member, err := embed.StartEtcd(s.embedConfig(cfg))
		started <- result{member, err}
	}()
	select {
	case r := <-started:
		if r.err != nil {
			return r.err
		}
		s.member = r.member
	case err := <-s.failure.c:
		return err
	}
	return s.elect(ctx)
}

// elect waits until the member leads and has written its own name, its first
// write. A member that is alone need not wait an election timeout (a second)
// to learn that nobody else leads: it is told to stand at once. A short timeout
// would do as well, but the clock that drives it would cost 2 % of a processor
// for as long as the member runs.
func (s *Server) elect(ctx context.Context) error {
	id := uint64(s.member.Server.MemberID())
	stand := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &id, To: &id}
	retry := time.NewTicker(electionRetry)
	defer retry.Stop()
	var leads chan error
	for {
		select {
		case <-s.member.Server.ReadyNotify():
			return s.reclaim(ctx)
		case <-retry.C:
			// Raft ignores the message as long as the member may not stand:
			// it has yet to take in that it is a member of its own cluster.
			if !replayed() {
				continue
			}
			if s.member.Server.Lead() == 0 {
				if err := s.member.Server.Process(ctx, stand); err != nil {
					return fmt.Errorf("stand for election: %w", err)
				}
			} else if leads == nil {
				leads = make(chan error, 1)
				go func() { leads <- s.member.Server.LinearizableReadNotify(ctx) }()
			}
		case err := <-leads:
			// Whoever answers such a read has committed all of his log. When
			// the database is ahead of that, the log has lost its end, and
			// would now drop as many writes as it lost.
			if committed := s.member.Server.CommittedIndex(); err == nil && committed < s.applied {
				return fmt.Errorf("%w: the log (member/wal) ends at entry %d, the database has %d", ErrCorrupt, committed, s.applied)
			}
		case err := <-s.failure.c:
			return err
		case err := <-s.member.Err():
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// replayed reports whether raft knows that all entries that were committed
// before the start are applied. A candidate looks through those that are not,
// and panics when etcd, which is further than raft knows, has dropped them from
// memory already: it drops the first after every 100 that it applies. The
// status is that of the member that started last.
func replayed() bool {
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return false
	}
	status, ok := published.Value().(raft.Status)
	return ok && status.Applied >= status.GetCommit()
}

func (s *Server) embedConfig(cfg Config) *embed.Config {
	c := embed.NewConfig()
	c.Name = "svc"
	c.Dir = cfg.Dir
	c.QuotaBackendBytes = cfg.Quota
	c.ListenClientUrls = []url.URL{s.socket.url()}
	c.AdvertiseClientUrls = c.ListenClientUrls
	// There is no peer to listen for. The advertised address is only the
	// member's name in its own membership list; nothing dials it.
	c.ListenPeerUrls = nil
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.EnableGRPCGateway = false
	c.BackendBatchInterval = batchInterval
	c.AutoCompactionRetention = "0" // the API server compacts: see the package comment
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(s.logs, s.failure))
	return c
}

// reclaim gives the space of deleted objects back to a member that came up
// with its quota exhausted, and lets it write again if that was enough.
func (s *Server) reclaim(ctx context.Context) error {
	full := false
	for _, alarm := range s.member.Server.Alarms() {
		full = full || alarm.Alarm == etcdserverpb.AlarmType_NOSPACE
	}
	if !full {
		return nil
	}
	backend := s.member.Server.Backend()
	if err := backend.Defrag(); err != nil {
		return fmt.Errorf("reclaim the space of deleted objects: %w", err)
	}
	if backend.Size() >= s.quota {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := s.member.Server.Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action:   etcdserverpb.AlarmRequest_DEACTIVATE,
		Alarm:    etcdserverpb.AlarmType_NOSPACE,
		MemberID: uint64(s.member.Server.MemberID()),
	})
	if err != nil {
		return fmt.Errorf("clear the NOSPACE alarm: %w", err)
	}
	return nil
}
