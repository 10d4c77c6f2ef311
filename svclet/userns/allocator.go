package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/checkpoint"
)

// Options configure an allocator.
type Options struct {
	Range  Range
	PerPod int64
	// PodDir returns the directory of a pod, which exists while the pod has users.
	PodDir func(uid types.UID) string
}

// Allocator gives pods users of the machine that no other pod has. What a pod has is in
// its directory, in kubelet's format, and ends with that.
type Allocator struct {
	o Options

	mu   sync.Mutex
	pods map[types.UID]int64 // the first user
}

// recordFile is the file in the directory of a pod.
const recordFile = "userns"

type record struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	Host      int64 `json:"hostId"`
	Container int64 `json:"containerId"`
	Length    int64 `json:"length"`
}

// New returns an allocator that knows what these pods have, which are all that have a
// directory.
func New(o Options, pods []types.UID) (*Allocator, error) {
	a := &Allocator{o: o, pods: map[types.UID]int64{}}
	owners := map[int64]types.UID{}
	for _, uid := range pods {
		first, found, err := a.load(uid)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if other, taken := owners[first]; taken {
			return nil, fmt.Errorf("%s: pod %s has the same users: delete both pods and these files, and start svclet again", a.path(uid), other)
		}
		owners[first], a.pods[uid] = uid, first
	}
	return a, nil
}

func (a *Allocator) path(uid types.UID) string { return filepath.Join(a.o.PodDir(uid), recordFile) }

// load returns the first user of a pod.
func (a *Allocator) load(uid types.UID) (first int64, found bool, err error) {
	raw, err := os.ReadFile(a.path(uid))
	// A power failure may have left a file that was not synced empty: no container has the
	// users any more.
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(raw) == 0 {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("reading the users of a pod: %w", err)
	}
	unusable := func(why string) error {
		return fmt.Errorf("%s: %s: delete the pod and this file, and start svclet again", a.path(uid), why)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return 0, false, unusable("it is damaged: " + err.Error())
	}
	if len(r.UIDs) != 1 || len(r.GIDs) != 1 || r.UIDs[0] != r.GIDs[0] || r.UIDs[0].Container != 0 {
		return 0, false, unusable("it must have one range, from user 0, the same for users and groups")
	}
	m := r.UIDs[0]
	offset := m.Host - a.o.Range.First
	if m.Length != a.o.PerPod || offset < 0 || offset%a.o.PerPod != 0 || offset+a.o.PerPod > a.o.Range.Length {
		return 0, false, unusable(fmt.Sprintf("its users, %d from %d, are not among those of pods now, %d each from %d", m.Length, m.Host, a.o.PerPod, a.o.Range.First))
	}
	return m.Host, true, nil
}

// Namespace returns the user namespace of a pod, which it keeps until Release.
func (a *Allocator) Namespace(uid types.UID) (*runtimeapi.UserNamespace, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, found := a.pods[uid]
	if !found {
		var err error
		if first, err = a.free(); err != nil {
			return nil, err
		}
		if err := a.save(uid, first); err != nil {
			return nil, err
		}
		a.pods[uid] = first
	}
	mappings := func() []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{HostId: uint32(first), ContainerId: 0, Length: uint32(a.o.PerPod)}}
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mappings(), Gids: mappings()}, nil
}

// free returns the first user of a range that no pod has.
func (a *Allocator) free() (int64, error) {
	taken := map[int64]bool{}
	for _, first := range a.pods {
		taken[first] = true
	}
	end := a.o.Range.First + a.o.Range.Length
	for first := a.o.Range.First; first+a.o.PerPod <= end; first += a.o.PerPod {
		if !taken[first] {
			return first, nil
		}
	}
	return 0, fmt.Errorf("all %d users for the user namespaces of pods are in use", a.o.Range.Length)
}

func (a *Allocator) save(uid types.UID, first int64) error {
	m := []mapping{{Host: first, Length: a.o.PerPod}}
	raw, err := json.Marshal(record{UIDs: m, GIDs: m})
	if err != nil {
		return err
	}
	if err := checkpoint.Replace(a.path(uid), raw); err != nil {
		return fmt.Errorf("saving the users of a pod: %w", err)
	}
	return nil
}

// Release frees the users of a pod whose directory has been removed.
func (a *Allocator) Release(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, uid)
}
