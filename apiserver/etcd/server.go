package etcd

import (
	"cmp"
	"context"
	"errors"
	"expvar"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"k8s.io/klog/v2"
)

// DefaultQuota is the size in bytes that the database may reach before etcd
// raises its NOSPACE alarm and refuses writes: 8 GiB, the largest that etcd
// recommends (https://etcd.io/docs/v3.6/dev-guide/limit/#storage-size-limit).
const DefaultQuota = 8 << 30

// electionRetry is how often a member that starts tries to campaign for
// leadership, until it can.
const electionRetry = time.Millisecond

// tick is the time between two ticks of raft's clock, by which the members of a cluster
// miss their leader: five times etcd's default. An election timeout is five ticks, which
// bounds the wait for a request (to ten seconds) and the shortest lease (to four) as well.
const tick = 500 * time.Millisecond

// batchInterval is how long the database collects writes before it commits them to
// its file: five times etcd's default. A write has to wait for a commit that runs,
// so fewer commits make writes faster. Writes are durable in the log before that,
// from which a member that was killed recovers. With a longer interval, reads
// between two writes would have more to copy.
const batchInterval = 500 * time.Millisecond

// Config is the directory of the member and the size that it may reach.
type Config struct {
	// Dir holds everything that the member writes. It is created, with
	// permissions 0700, when it does not exist.
	Dir string
	// Quota is the size limit of the database in bytes; 0 means DefaultQuota.
	Quota int64
	// WholeLog keeps as much of raft's log as etcd does by default, in memory and on disk,
	// which members need that are behind (docs/decisions/raft-log.md).
	WholeLog bool

	// snapshotCount is the number of entries after which a snapshot is written; 0 means
	// defaultSnapshotCount.
	snapshotCount uint64
}

// Server is a running member.
type Server struct {
	member  *embed.Etcd
	quota   int64
	socket  socket
	logs    *logCore
	failure *failure
	stop    sync.Once
}

// Checked is a directory in which a member can run.
type Checked struct{ cfg Config }

// Check returns an error unless a member can run in cfg.Dir. It creates that directory, and
// removes what a first start that was interrupted has left; files with data are read and not
// changed, so that a start that is refused leaves them as they are.
//
// The error names the file or directory at fault and the remedy. It is ErrInUse,
// ErrCorrupt, fs.ErrPermission or syscall.ENOSPC, by errors.Is, where one applies.
func Check(cfg Config) (Checked, error) {
	if cfg.Quota == 0 {
		cfg.Quota = DefaultQuota
	}
	return Checked{cfg}, checkDir(cfg.Dir)
}

// Start checks the directory, and runs a member in it.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	checked, err := Check(cfg)
	if err != nil {
		return nil, err
	}
	return checked.Start(ctx)
}

// Start runs a member and returns when it serves reads and writes: after some 10 ms,
// or more if it has a long log to replay.
//
// Logs go to the logger of ctx. Cancelling ctx aborts the start; it does not stop
// a member that has started. Errors are as those of Check.
func (c Checked) Start(ctx context.Context) (*Server, error) {
	cfg := c.cfg
	socket, err := newSocket(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		quota:   cfg.Quota,
		socket:  socket,
		logs:    newLogCore(klog.FromContext(ctx).WithName("etcd")),
		failure: newFailure(cfg.Dir),
	}
	if err := s.start(ctx, cfg); err != nil {
		s.Stop()
		if s.failure.err() == nil { // errors of failure are explained already
			err = explain(cfg.Dir, err)
		}
		return nil, err
	}
	s.logs.serving.Store(true)
	return s, nil
}

// Endpoints returns the addresses of the member, for --etcd-servers and etcdctl.
func (s *Server) Endpoints() []string {
	u := s.socket.url()
	return []string{u.String()}
}

// Client returns a client that reaches the member by function calls, without a
// connection. It is valid until the member stops and need not be closed.
func (s *Server) Client() *clientv3.Client { return v3client.New(s.member.Server) }

// Failed returns a channel that receives one error if the member cannot continue,
// for example because the disk of its log is full. The error names the remedy as
// those of Start do. The process should then end; no acknowledged write is lost.
func (s *Server) Failed() <-chan error {
	return s.failure.c
}

// Check returns an error unless the member serves reads and writes: it must answer
// a linearizable read before the deadline of ctx and have no alarm.
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

// Stop stops the member and returns when all its data is on the disk. Clients
// should be closed before: open watches delay it by up to five seconds.
func (s *Server) Stop() {
	s.stop.Do(func() {
		// After a failure one of the member's goroutines has ended, and Close would
		// wait for it without end. Its files are in the state that a kill leaves.
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

// elect waits until the member is the leader and has published its own attributes,
// its first write. The only member of a cluster need not wait for the election
// timeout (a second) to find that there is no leader: it is sent MsgTimeoutNow, by
// which it campaigns at once. A short election timeout would do as well, but its
// ticks would cost 2 % of a processor while the member runs.
func (s *Server) elect(ctx context.Context) error {
	id := uint64(s.member.Server.MemberID())
	campaign := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &id, To: &id}
	retry := time.NewTicker(electionRetry)
	defer retry.Stop()
	for {
		select {
		case <-s.member.Server.ReadyNotify():
			return s.reclaim(ctx)
		case <-retry.C:
			// Raft ignores the message until the member has applied the entry that
			// makes it a member of its own cluster.
			status, known := raftStatus()
			if !known || !replayed(status) {
				continue
			}
			if s.member.Server.Lead() == 0 {
				if err := s.member.Server.Process(ctx, campaign); err != nil {
					return fmt.Errorf("campaign for leadership: %w", err)
				}
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

// raftStatus returns the state of raft in the member of this process that started last,
// and reports whether there is one.
func raftStatus() (raft.Status, bool) {
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return raft.Status{}, false
	}
	status, ok := published.Value().(raft.Status)
	return status, ok
}

// replayed reports whether raft has recorded that all entries committed before the
// start are applied. A candidate reads the entries that are not, and panics if
// etcd has compacted them from memory already: etcd applies them before raft
// records it, and compacts memory after every 100 entries.
func replayed(status raft.Status) bool { return status.Applied >= status.GetCommit() }

// The limits of raft's log (docs/decisions/raft-log.md). An entry is a write, and as
// large as its object, up to 1.5 MB.
const (
	// catchUpEntries is the number of applied entries that raft keeps in memory for
	// members that are behind, of which there are none; etcd's default is 5,000.
	catchUpEntries = 64
	// defaultSnapshotCount is a tenth of etcd's default: the entries after the last
	// snapshot are read into memory and applied again at the next start.
	defaultSnapshotCount = 1000
)

func (s *Server) embedConfig(cfg Config) *embed.Config {
	c := embed.NewConfig()
	c.Name = "svc"
	c.Dir = cfg.Dir
	c.QuotaBackendBytes = cfg.Quota
	c.ListenClientUrls = []url.URL{s.socket.url()}
	c.AdvertiseClientUrls = c.ListenClientUrls
	// There are no peers to listen for. The advertised address is only part of the
	// member's entry in its own membership list; nothing connects to it.
	c.ListenPeerUrls = nil
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = uint(tick.Milliseconds()), uint(5*tick.Milliseconds())
	c.BackendBatchInterval = batchInterval
	if !cfg.WholeLog {
		c.SnapshotCatchUpEntries = catchUpEntries
		c.SnapshotCount = cmp.Or(cfg.snapshotCount, defaultSnapshotCount)
	}
	c.AutoCompactionRetention = "0" // the API server compacts: see the package comment
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(s.logs, s.failure))
	return c
}

// reclaim frees the space of deleted objects if the member has started with the alarm
// NOSPACE, and clears the alarm if the database is then below the quota. It needs space for a
// copy of the database. Without it the alarm stays: objects must be deleted before the next
// start, and a member that did not start could delete none.
func (s *Server) reclaim(ctx context.Context) error {
	if !slices.ContainsFunc(s.member.Server.Alarms(), func(a *etcdserverpb.AlarmMember) bool { return a.Alarm == etcdserverpb.AlarmType_NOSPACE }) {
		return nil
	}
	reclaimed := make(chan error, 1)
	go func() { reclaimed <- s.shrink(ctx) }()
	select {
	case err := <-reclaimed:
		if failed := (*defragmentError)(nil); errors.As(err, &failed) && ctx.Err() == nil {
			s.logs.to.Error(err, "Failed to reclaim the space of deleted objects, etcd accepts only reads and deletions: delete objects or free space on the disk, then restart",
				"neededBytes", s.member.Server.Backend().SizeInUse())
			return nil
		}
		return err
	case err := <-s.failure.c: // which may have ended the goroutine
		return err
	}
}

// shrink compacts and defragments the database, and clears the alarm NOSPACE if the
// database is then below the quota. With the alarm only the member can compact: the API
// server writes a key before each compaction (etcd3.Compact), which etcd refuses.
func (s *Server) shrink(ctx context.Context) error {
	server := s.member.Server
	_, err := server.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: server.KV().Rev(), Physical: true})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) {
		return fmt.Errorf("compact the history: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := s.defragment(); err != nil {
		return &defragmentError{err}
	}
	if server.Backend().Size() >= s.quota {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = server.Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action:   etcdserverpb.AlarmRequest_DEACTIVATE,
		Alarm:    etcdserverpb.AlarmType_NOSPACE,
		MemberID: uint64(server.MemberID()),
	})
	if err != nil {
		return fmt.Errorf("clear the NOSPACE alarm: %w", err)
	}
	return nil
}

// defragmentError is why the space of deleted objects could not be freed.
type defragmentError struct{ error }

// defragment replaces the database by a copy without the space of deleted objects. etcd leaves
// the file of a copy that failed or was interrupted, which this removes.
func (s *Server) defragment() error {
	dir := s.member.Server.Cfg.SnapDir()
	removeCopies := func() error {
		files, err := fs.Glob(os.DirFS(dir), "db.tmp.*")
		for _, file := range files {
			err = errors.Join(err, os.Remove(filepath.Join(dir, file)))
		}
		return err
	}
	err := removeCopies()
	if err == nil {
		err = s.member.Server.Backend().Defrag()
	}
	if err != nil {
		return fmt.Errorf("copy the database: %w", errors.Join(err, removeCopies()))
	}
	return nil
}
