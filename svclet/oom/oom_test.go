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

func TestKillsOfTheMachineAndOfCgroups(t *testing.T) {
	const message, pod = "System OOM encountered, victim process: stress, pid: 4321", "/kubepods/burstable/podu/c"
	ofMachine, ofContainer, unknown := Kill{pod, true, message}, Kill{pod, false, message}, Kill{"", true, message}
	for _, test := range []struct {
		rule string
		log  records
		want []Kill
	}{
		{"no memory is left on the machine", records{begin, machine, end}, []Kill{ofMachine}},
		{"other messages are between", records{begin, "6,1,1,-;eth0: link up", machine, end}, []Kill{ofMachine}},
		{"each is reported", records{begin, machine, end, begin, machine, end}, []Kill{ofMachine, ofMachine}},
		{"a container has reached its limit", records{begin, limit, limited}, []Kill{ofContainer}},
		{"a pod has reached its limit", records{begin, strings.ReplaceAll(limit, "oom_memcg="+pod, "oom_memcg=/kubepods/burstable/podu"), limited}, []Kill{ofContainer}},
		{"the limit is that of the root cgroup", records{begin, strings.ReplaceAll(limit, "oom_memcg="+pod, "oom_memcg=/"), limited}, []Kill{ofMachine}},
		{"a container has reached its limit, before Linux 5.0", records{begin, "6,1,1,-;Task in " + pod + " killed as a result of limit of " + pod, end}, []Kill{ofContainer}},
		{"the limit is that of the root cgroup, before Linux 5.0", records{begin, "6,1,1,-;Task in " + pod + " killed as a result of limit of /", end}, []Kill{ofMachine}},
		{"no memory is left on the machine, before Linux 5.0", records{begin, end}, []Kill{unknown}},
		{"the beginning was not read", records{machine, end}, nil},
		{"messages between were overwritten", records{begin, overwritten, end, begin, machine, end}, []Kill{ofMachine}},
		{"a record without a message", records{"4,1", begin, machine, end}, []Kill{ofMachine}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got []Kill
			if err := Watch(&test.log, func(k Kill) { got = append(got, k) }); !errors.Is(err, io.EOF) {
				t.Errorf("it ends with %v", err)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
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
	go func() { ended <- Watch(log, func(Kill) {}) }()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("it ends without an error")
	}
}
