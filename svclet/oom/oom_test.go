package oom

import (
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// records is a kernel's log: each read returns one record, or an error.
type records []string

const overwritten = "EPIPE"

func (r *records) Read(buffer []byte) (int, error) {
	if len(*r) == 0 {
		return 0, io.EOF
	}
	next := (*r)[0]
	*r = (*r)[1:]
	if next == overwritten {
		return 0, syscall.EPIPE
	}
	return copy(buffer, next), nil
}

const (
	begin   = "4,1001,97412345,-;stress invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=1000\n SUBSYSTEM=memory\n"
	machine = "6,1002,97412346,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/kubepods/burstable/podu/c,task=stress,pid=4321,uid=0"
	limit   = "6,1002,97412346,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/burstable/podu/c,task_memcg=/kubepods/burstable/podu/c,task=stress,pid=4321,uid=0"
	end     = "3,1003,97412347,-;Out of memory: Killed process 4321 (stress) total-vm:1024kB, anon-rss:900kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:1000"
	limited = "3,1003,97412347,-;Memory cgroup out of memory: Killed process 4321 (stress) total-vm:1024kB"
)

func TestWhichKillsAreOfTheWholeMachine(t *testing.T) {
	const message = "System OOM encountered, victim process: stress, pid: 4321"
	for _, test := range []struct {
		rule string
		log  records
		want []string
	}{
		{"no memory is left on the machine", records{begin, machine, end}, []string{message}},
		{"other messages are between", records{begin, "6,1,1,-;eth0: link up", machine, end}, []string{message}},
		{"each is reported", records{begin, machine, end, begin, machine, end}, []string{message, message}},
		{"a container has reached its limit", records{begin, limit, limited}, nil},
		{"the limit is that of the root cgroup", records{begin, strings.ReplaceAll(limit, "oom_memcg=/kubepods/burstable/podu/c", "oom_memcg=/"), limited}, []string{message}},
		{"a container has reached its limit, before Linux 5.0", records{begin, "6,1,1,-;Task in /kubepods/podu/c killed as a result of limit of /kubepods/podu/c", end}, nil},
		{"no memory is left on the machine, before Linux 5.0", records{begin, "6,1,1,-;Task in /kubepods/podu/c killed as a result of limit of /", end}, []string{message}},
		{"the beginning was not read", records{machine, end}, nil},
		{"messages between were overwritten", records{begin, overwritten, end, begin, machine, end}, []string{message}},
		{"a record without a message", records{"4,1", begin, machine, end}, []string{message}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got []string
			if err := Watch(&test.log, func(message string) { got = append(got, message) }); !errors.Is(err, io.EOF) {
				t.Errorf("it ends with %v", err)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestClosingTheKernelsLogEndsTheWatch(t *testing.T) {
	log, err := Open()
	if err != nil {
		t.Skipf("this process may not read the kernel's log: %v", err)
	}
	ended := make(chan error)
	go func() { ended <- Watch(log, func(string) {}) }()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("it ends without an error")
	}
}
