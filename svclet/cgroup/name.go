package cgroup

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Driver is who keeps the cgroups: --cgroup-driver.
type Driver string

// The drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// name is a cgroup, from the root down, without what a driver makes of it.
type name []string

// Each element is one level for either driver; in systemd's names "-" stands
// between levels, and "_" for the "-" of an element.
const (
	podPrefix   = "pod"
	sliceSuffix = ".slice"
)

func (n name) child(element string) name {
	return append(append(name{}, n...), element)
}

// path is where a cgroup is, below each hierarchy's mount point.
func (d Driver) path(n name) string {
	if d != Systemd {
		return "/" + strings.Join(n, "/")
	}
	var path, unit strings.Builder
	for i, element := range n {
		if i > 0 {
			unit.WriteByte('-')
		}
		unit.WriteString(strings.ReplaceAll(element, "-", "_"))
		path.WriteString("/" + unit.String() + sliceSuffix)
	}
	if path.Len() == 0 {
		return "/"
	}
	return path.String()
}

// name reads a cgroup's name from a path, as flags give it.
func (d Driver) name(path string) name {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	elements := strings.Split(path, "/")
	if d != Systemd {
		return elements
	}
	unit := strings.TrimSuffix(elements[len(elements)-1], sliceSuffix)
	var n name
	for element := range strings.SplitSeq(unit, "-") {
		n = append(n, strings.ReplaceAll(element, "_", "-"))
	}
	return n
}

// podElement is the last element of a pod's cgroup. A UID may come from a file,
// so that it is looked at before it becomes a path.
func podElement(uid types.UID) (string, error) {
	if uid == "" || strings.ContainsAny(string(uid), "/_") || strings.Contains(string(uid), "..") {
		return "", fmt.Errorf("pod UID %q cannot be the name of a cgroup", uid)
	}
	return podPrefix + string(uid), nil
}

// podUID reads a pod's UID from a directory below that of its class.
func (d Driver) podUID(directory string) (types.UID, bool) {
	n := d.name(directory)
	if len(n) == 0 {
		return "", false
	}
	uid, isPod := strings.CutPrefix(n[len(n)-1], podPrefix)
	return types.UID(uid), isPod && uid != ""
}
