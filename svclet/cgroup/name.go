package cgroup

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Driver is the cgroup driver (--cgroup-driver).
type Driver string

// The drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// name is the path of a cgroup, independent of the driver's notation.
type name []string

// Each element is one level for either driver. In systemd's names "-" separates
// levels, and "_" replaces the "-" in an element.
const (
	podPrefix   = "pod"
	sliceSuffix = ".slice"
)

func (n name) child(element string) name {
	return append(append(name{}, n...), element)
}

// PodsPath returns the path of the cgroup of all pods below each hierarchy's mount
// point, given the cgroup root (--cgroup-root). perQOS is --cgroups-per-qos, without
// which pods are in the root itself.
func (d Driver) PodsPath(root string, perQOS bool) string { return d.path(podsName(root, perQOS)) }

func podsName(root string, perQOS bool) name {
	n := Cgroupfs.name(root)
	if perQOS {
		n = n.child("kubepods")
	}
	return n
}

// path returns the path of a cgroup below each hierarchy's mount point.
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

// name parses a path, as flags have it.
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

// podElement returns the last element of a pod's cgroup. It validates the UID,
// which may come from a file, before it becomes a part of a path.
func podElement(uid types.UID) (string, error) {
	if uid == "" || strings.ContainsAny(string(uid), "/_") || strings.Contains(string(uid), "..") {
		return "", fmt.Errorf("pod UID %q cannot be the name of a cgroup", uid)
	}
	return podPrefix + string(uid), nil
}

// podUID returns a pod's UID from the name of its directory.
func (d Driver) podUID(directory string) (types.UID, bool) {
	n := d.name(directory)
	if len(n) == 0 {
		return "", false
	}
	uid, isPod := strings.CutPrefix(n[len(n)-1], podPrefix)
	return types.UID(uid), isPod && uid != ""
}

// Container returns the pod and the runtime's ID of the container that a cgroup is of, or is
// within, from the cgroup's path. Runtimes name the cgroup "ID" or "PREFIX-ID" and, with
// systemd, "PREFIX-ID.scope".
func (d Driver) Container(path string) (uid types.UID, id string, found bool) {
	elements := strings.Split(path, "/")
	for i, element := range elements[:len(elements)-1] {
		if uid, isPod := d.podUID(element); isPod {
			id := strings.TrimSuffix(elements[i+1], ".scope")
			if id = id[strings.LastIndexByte(id, '-')+1:]; id != "" {
				return uid, id, true
			}
		}
	}
	return "", "", false
}
