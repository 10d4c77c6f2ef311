package etcd

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// victim is an environment variable. If it is set, this test binary runs a member
// in the directory that it names, and writes to it until it is killed.
const victim = "SVC_ETCD_TEST_VICTIM"

// killedMember returns the configuration of the members that are killed. They write so
// many snapshots, and raft compacts so much of its log, that kills hit both.
func killedMember(dir string) Config { return Config{Dir: dir, snapshotCount: 20} }

func TestMain(m *testing.M) {
	if dir := os.Getenv(victim); dir != "" {
		writeUntilKilled(dir)
	}
	os.Exit(m.Run())
}

func TestAKillLosesNothingThatWasAcknowledged(t *testing.T) {
	root := t.TempDir()
	for round := range 24 {
		// Each directory is used for three runs; the first ones are killed during the start.
		dir := filepath.Join(root, strconv.Itoa(round/3))
		acknowledged := liveFor(t, dir, time.Duration(round)*2*time.Millisecond)
		s, err := Start(t.Context(), killedMember(dir))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		c := client(t, s)
		for _, key := range acknowledged {
			r, err := c.Get(t.Context(), key)
			if err != nil || len(r.Kvs) != 1 {
				t.Errorf("round %d: %s was acknowledged and is lost (%v, %v)", round, key, r, err)
			}
		}
		c.Close()
		s.Stop()
	}
}

// TestAMemberStartsWhenTheDatabaseIsAheadOfWhatTheLogRecordsAsCommitted starts a member
// as a kill can leave it: the database has entries that the log has, too, but did not
// record as committed yet. As the leader, the only member of a cluster answers reads
// before it has committed them again, one by one, because they are large.
func TestAMemberStartsWhenTheDatabaseIsAheadOfWhatTheLogRecordsAsCommitted(t *testing.T) {
	const entries = 12
	dir := t.TempDir()
	s := start(t, Config{Dir: dir})
	large := strings.Repeat("x", 600<<10) // raft commits at most 512 KiB at a time
	for i := range entries {
		put(t, s, fmt.Sprintf("key-%d", i), large)
	}
	s.Stop()
	size := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 1 // each write begins a file, which takes long
	t.Cleanup(func() { wal.SegmentSizeBytes = size })
	uncommit(t, dir, entries)
	s = start(t, Config{Dir: dir})
	if got := get(t, s, fmt.Sprintf("key-%d", entries-1)); got != large {
		t.Errorf("the last write has %d bytes", len(got))
	}
}

// TestAMemberStartsWhereverItStoppedAfterASnapshot stops members after different numbers of
// entries. The last entry of one is the first one after a snapshot, which the log names by
// its index and its term.
func TestAMemberStartsWhereverItStoppedAfterASnapshot(t *testing.T) {
	const count = 4
	found := false
	for puts := range count + 2 {
		dir := t.TempDir()
		s := start(t, Config{Dir: dir, snapshotCount: count})
		for i := range puts {
			put(t, s, fmt.Sprintf("key-%d", i), "value")
		}
		s.Stop()
		applied, err := databaseIsReadable(dir)
		if err != nil {
			t.Fatal(err)
		}
		snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), filepath.Join(dir, "member", "wal"))
		if err != nil {
			t.Fatal(err)
		}
		found = found || snapshots[len(snapshots)-1].GetIndex()+1 == applied
		start(t, Config{Dir: dir, snapshotCount: count})
	}
	if !found {
		t.Error("no member stopped at the first entry after a snapshot")
	}
}

// uncommit records in the log of a stopped member that its last entries are not committed.
func uncommit(t *testing.T, dir string, entries uint64) {
	t.Helper()
	log, err := wal.Open(zap.NewNop(), filepath.Join(dir, "member", "wal"), &walpb.Snapshot{Index: new(uint64), Term: new(uint64)})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, state, all, err := log.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	state.Commit = new(all[len(all)-1].GetIndex() - entries)
	if err := log.Save(state, nil); err != nil {
		t.Fatal(err)
	}
}

// liveFor runs a victim, kills it after about the given time, and returns the keys
// whose writes were acknowledged.
func liveFor(t *testing.T, dir string, life time.Duration) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victim+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var keys []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "starting" {
			time.AfterFunc(life, func() { _ = cmd.Process.Kill() })
			continue
		}
		keys = append(keys, lines.Text())
	}
	_ = cmd.Wait() // killed
	return keys
}

func writeUntilKilled(dir string) {
	ctx := context.Background()
	fmt.Println("starting")
	s, err := Start(ctx, killedMember(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints()})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		key := fmt.Sprintf("key-%d-%d", os.Getpid(), i)
		if _, err := c.Put(ctx, key, "value"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(key)
	}
}
