// Package hack has no code: it is the scripts, and their tests.
package hack_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// svc stands for svc kubectl at a host with a fleet of three members of etcd, whose state is
// in files of $STATE. A command that matches $FAIL fails, and with $LOST all that follow; one
// that matches $INTERRUPT gets Ctrl-C, as the script does.
const svc = `#!/usr/bin/env bash
set -euo pipefail
shift 2
cd "$STATE"
command=$*
input=$(cat)
matches() { [[ -n $1 && $command =~ $1 ]]; }
wrong() { echo "$1: $command" >>wrong; }
if [[ -e lost ]] || matches "$FAIL"; then
	[[ -z $LOST ]] || touch lost
	exit 1
fi
! matches "$INTERRUPT" || kill -INT 0
case $1 in
create)
	touch pod
	grep -o 'initial-cluster-token=.*' <<<"$input" >>tokens
	sed -n 's/.*--bump-revision=//p' <<<"$input" >>bumps
	;;
delete) rm -f pod ;;
scale)
	for object in "${@:3}"; do
		echo "${2#--replicas=}" >"${object#*/}"
	done
	[[ ! -e pod || $(cat svc-etcd) == 0 ]] || wrong 'etcd runs beside a pod that restores it'
	;;
exec)
	[[ -e pod ]] || wrong 'there is no pod'
	[[ $command != *'rm -rf /var/lib/etcd/data'* ]] || echo "$command" >>replaced
	;;
get)
	case ${command##*-o } in
	*image*) echo etcd:1 ;;
	*args*) echo --initial-cluster=svc-etcd-0=https://0,svc-etcd-1=https://1,svc-etcd-2=https://2 ;;
	*replicas*) cat "${2#*/}" ;;
	*phase*) echo "$PHASE" ;;
	esac
	;;
esac
`

// etcdutl stands for etcdutl snapshot status FILE, which has the snapshot's revision.
const etcdutl = `#!/bin/sh
grep -q '^snapshot' "$3" && echo '{"hash":1,"revision":'"$(sed -n 's/snapshot at //p' "$3")"',"totalKey":1}'
`

// fleet is a fleet whose data is to be restored.
type fleet struct {
	t *testing.T
	// state is the directory with its files, bin that of the programs that the script runs.
	state, bin string
}

// newFleet returns a fleet each of whose workloads has a number of pods.
func newFleet(t *testing.T, pods string) *fleet {
	t.Helper()
	f := &fleet{t: t, state: t.TempDir(), bin: t.TempDir()}
	files := map[string]string{
		filepath.Join(f.bin, "svc"):        svc,
		filepath.Join(f.bin, "sleep"):      "#!/bin/sh\n",
		filepath.Join(f.bin, "etcdutl"):    etcdutl,
		filepath.Join(f.state, "snapshot"): "snapshot at 1000",
	}
	for _, workload := range []string{"svc-etcd", "svc-apiserver", "svc-controller-manager"} {
		files[filepath.Join(f.state, workload)] = pods
	}
	for path, content := range files {
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// read returns the content of a file of the state, without white space around it.
func (f *fleet) read(name string) string {
	f.t.Helper()
	content, err := os.ReadFile(filepath.Join(f.state, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

// restore runs the script, and returns its output.
func (f *fleet) restore(environment ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "restore.sh", filepath.Join(f.state, "snapshot"))
	cmd.Env = append(os.Environ(), "BIN="+f.bin, "KUBECONFIG=host", "STATE="+f.state, "PHASE=Running", "FAIL=", "LOST=", "INTERRUPT=")
	cmd.Env = append(cmd.Env, environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // which Ctrl-C reaches
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestARestoreReplacesTheDataOfEachMember(t *testing.T) {
	f := newFleet(t, "3")
	out, err := f.restore()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := len(strings.Split(f.read("replaced"), "\n")); got != 3 || f.read("svc-etcd") != "3" || f.read("wrong") != "" {
		t.Errorf("the data of %d members has been replaced, etcd has %s pods; %s", got, f.read("svc-etcd"), f.read("wrong"))
	}
}

func TestTheRevisionAfterARestoreIsThatOfTheClock(t *testing.T) {
	f := newFleet(t, "3")
	before := time.Now().Unix()
	if out, err := f.restore(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for bump := range strings.SplitSeq(f.read("bumps"), "\n") {
		by, err := strconv.ParseInt(bump, 10, 64)
		if at := by + 1000; err != nil || at < before*10_000 || at > time.Now().Unix()*10_000 {
			t.Errorf("raised by %s, from 1000", bump)
		}
	}
}

func TestNothingIsRestoredFromWhatIsNoSnapshot(t *testing.T) {
	for content, want := range map[string]string{
		"": "is no snapshot: hack/backup.sh writes one", "text": "is no snapshot: hack/backup.sh writes one",
		"snapshot at 9000000000000000": "ahead of the clock of this machine",
	} {
		f := newFleet(t, "3")
		if err := os.WriteFile(filepath.Join(f.state, "snapshot"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := f.restore(); err == nil || !strings.Contains(out, want) || f.read("svc-etcd") != "3" {
			t.Errorf("%q: %v, %s; etcd has %s pods", content, err, out, f.read("svc-etcd"))
		}
	}
}

// The token is in the IDs of members: by its ID, a member that has lost its volume learns that it
// belongs to a cluster already, and does not make another one.
func TestTheMembersThatARestoreMakesHaveTheIDsOfTheManifests(t *testing.T) {
	f := newFleet(t, "3")
	if out, err := f.restore(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tokens := strings.Split(f.read("tokens"), "\n")
	if len(tokens) != 3 {
		t.Fatalf("the tokens are %v, want one for each member", tokens)
	}
	args := etcd(t).Spec.Template.Spec.Containers[0].Args
	for _, token := range tokens {
		if !slices.Contains(args, "--"+token) {
			t.Errorf("a member is restored with %s, the manifests have %v", token, args)
		}
	}
}

// etcd returns the StatefulSet of the manifests.
func etcd(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	content, err := os.ReadFile("../config/aggregated/system/etcd/statefulset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := &appsv1.StatefulSet{}
	if err := yaml.UnmarshalStrict(content, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheFleetReturnsAfterAFailureIfNoDataCanBeReplaced(t *testing.T) {
	const (
		upload  = "exec -i svc-etcd-restore-0"
		replace = "exec svc-etcd-restore-0"
		cleanup = "delete pod svc-etcd-restore-0 .*--timeout"
		here    = "3"
		away    = "0"
		same    = "no data has been replaced"
	)
	for name, test := range map[string]struct {
		environment  []string
		before, want string // pods of etcd
		says         string
	}{
		"etcd does not end":                           {[]string{"FAIL=wait pod --for=delete"}, here, here, same},
		"no pod can be created":                       {[]string{"FAIL=create"}, here, here, same},
		"the snapshot cannot be uploaded":             {[]string{"FAIL=" + upload}, here, here, same},
		"Ctrl-C during the upload":                    {[]string{"INTERRUPT=" + upload}, here, here, same},
		"Ctrl-C while the snapshot is restored":       {[]string{"INTERRUPT=phase"}, here, here, same},
		"Ctrl-C during the upload, and again":         {[]string{"INTERRUPT=" + upload + "|" + cleanup}, here, here, same},
		"the snapshot cannot be restored":             {[]string{"PHASE=Failed"}, here, here, same},
		"the pod does not end":                        {[]string{"FAIL=" + upload + "|" + cleanup}, here, away, "statefulset/svc-etcd to 3"},
		"the host is lost":                            {[]string{"FAIL=" + upload, "LOST=true"}, here, away, "statefulset/svc-etcd to 3"},
		"the data cannot be replaced":                 {[]string{"FAIL=" + replace}, here, away, "1 of 3"},
		"Ctrl-C while the data is replaced":           {[]string{"INTERRUPT=" + replace}, here, away, "1 of 3"},
		"the pod does not end with the data replaced": {[]string{"FAIL=delete pod svc-etcd-restore-0$"}, here, away, "1 of 3"},
		"the second member fails":                     {[]string{"FAIL=exec -i svc-etcd-restore-1"}, here, away, "1 of 3"},
		"an earlier attempt may have replaced data":   {[]string{"FAIL=" + upload}, away, away, "earlier attempt"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, test.before)
			out, err := f.restore(test.environment...)
			if err == nil || !strings.Contains(out, test.says) {
				t.Errorf("it ended with %v, and does not say %q", err, test.says)
			}
			if got := f.read("svc-etcd"); got != test.want {
				t.Errorf("etcd has %s pods, want %s", got, test.want)
			}
			if wrong := f.read("wrong"); wrong != "" {
				t.Error(wrong)
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}
