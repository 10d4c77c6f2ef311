package decision

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// claimsOfNamespace is the number of claims in each namespace of a random cluster.
const claimsOfNamespace = 5

// withVolumes adds claims and disks to the line of a pod, each with a probability.
func (w *clusterState) withVolumes(line string, p float64) string {
	namespace := parsePod(line).Namespace
	line += w.maybe(0.1, "disk=d1", "disk=d1:ro", "disk=d2")
	for range 2 {
		if w.Float64() < p {
			claim := " claim=" + claimName(namespace, w.IntN(claimsOfNamespace))
			if !strings.Contains(line, claim) {
				line += claim
			}
		}
	}
	return line + w.maybe(0.01, "claim=absent")
}

// claimName returns the name of a claim, which is of one namespace only: kube-scheduler takes
// a claim that only one pod may use for that of the same name in another namespace.
func claimName(namespace string, i int) string { return fmt.Sprintf("%s-%d", namespace, i) }

// buildStorage makes classes, volumes and claims of each kind: bound and waiting ones, with
// the limits and capacities of their drivers, and the attachments of volumes.
func (w *clusterState) buildStorage(q *question) {
	for _, line := range []string{"waits waits", "provisions waits provisioner=d1", "zoned waits provisioner=d1 zone=" + w.zone(), "other waits provisioner=d2", "immediate provisioner=d1"} {
		w.record("class " + line)
		q.Classes = append(q.Classes, parseClass(line))
		w.snapshot.SetClass(q.Classes[len(q.Classes)-1])
	}
	for _, name := range []string{"d1", "d2"} {
		driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{
			StorageCapacity: ptr.To(w.Float64() < 0.5), PreventPodSchedulingIfMissing: ptr.To(w.Float64() < 0.1),
		}}
		w.record(fmt.Sprintf("driver %s capacity=%t required=%t", name, *driver.Spec.StorageCapacity, *driver.Spec.PreventPodSchedulingIfMissing))
		q.Drivers = append(q.Drivers, driver)
		w.snapshot.SetDriver(driver)
	}
	for i := range w.IntN(6) {
		w.capacity(q, fmt.Sprint("report", i))
	}
	for _, n := range q.Nodes {
		if w.Float64() < 0.7 {
			line := n.Name + w.maybe(0.8, "d1=1", "d1=2") + w.maybe(0.7, "d2=1", "d2=3", "d2")
			w.record("limits " + line)
			q.CSINodes = append(q.CSINodes, parseLimits(line))
			w.snapshot.SetCSINode(q.CSINodes[len(q.CSINodes)-1])
		}
	}
	for i := range w.IntN(6) {
		w.volume(q, fmt.Sprint("static", i)+" class=waits"+w.where()+w.size()+" mode=ReadWriteOnce")
	}
	for _, namespace := range q.Namespaces {
		for i := range claimsOfNamespace {
			w.claim(q, namespace.Name, claimName(namespace.Name, i))
		}
	}
	for i := range w.IntN(4) {
		w.attachment(q, fmt.Sprint("attached", i))
	}
}

// attachment makes a volume that is attached to a node without a pod. No claim has it:
// kube-scheduler counts a volume of the pod twice that is attached to the node.
func (w *clusterState) attachment(q *question, name string) {
	w.volume(q, name+w.one(" csi=d1", " csi=d2", ""))
	line := name + " volume=" + w.one(name, name, "absent") + " csi=" + w.one("d1", "d2") + " on=" + q.Nodes[w.IntN(len(q.Nodes))].Name
	w.record("attachment " + line)
	q.Attachments = append(q.Attachments, parseAttachment(line))
	w.snapshot.SetAttachment(q.Attachments[len(q.Attachments)-1])
}

// claim makes a claim that is bound, waits for a pod or cannot be used.
func (w *clusterState) claim(q *question, namespace, name string) {
	line := name + " ns=" + namespace + w.size()
	switch kind := w.IntN(20); {
	case kind < 10:
		w.volume(q, name+w.where()+w.size()+w.maybe(0.3, "{topology.kubernetes.io/zone=z1}", "{topology.kubernetes.io/zone=z2__z3}", "{failure-domain.beta.kubernetes.io/zone=z1}")+w.maybe(0.7, "csi=d1", "csi=d2"))
		line += " class=provisions volume=" + name + " " + w.one("mode=ReadWriteOnce", "mode=ReadWriteOncePod")
	case kind < 17:
		line += " mode=ReadWriteOnce class=" + w.one("waits", "provisions", "zoned", "other") + w.maybe(0.2, "selected="+q.Nodes[w.IntN(len(q.Nodes))].Name)
	case kind < 18:
		line += " mode=ReadWriteOnce class=" + w.one("immediate", "absent")
	case kind < 19:
		line += " mode=ReadWriteOnce class=provisions volume=absent"
	default:
		line += " mode=ReadWriteOnce class=provisions deleting"
	}
	w.record("claim " + line)
	claim := parseClaim(line)
	if claim.DeletionTimestamp != nil {
		claim.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	}
	q.Claims = append(q.Claims, claim)
	w.snapshot.SetClaim(claim)
}

// isExclusive reports whether a claim may have one pod only, and has one.
func (w *clusterState) isExclusive(c claimed) bool {
	claim := w.snapshot.storage.claims[c.name]
	return claim != nil && claim.Spec.AccessModes[0] == corev1.ReadWriteOncePod && w.snapshot.storage.users[c.name] > 0
}

func (w *clusterState) volume(q *question, line string) {
	w.record("volume " + line)
	volume := parseVolume(line)
	q.Volumes = append(q.Volumes, volume)
	w.snapshot.SetVolume(volume)
}

func (w *clusterState) capacity(q *question, name string) {
	line := name + " class=" + w.one("provisions", "zoned", "other") + w.size() + w.maybe(0.3, "max=1Gi", "max=3Gi") + w.maybe(0.7, "on="+q.Nodes[w.IntN(len(q.Nodes))].Name)
	w.record("capacity " + line)
	report := parseCapacity(line)
	q.Capacities = append(q.Capacities, report)
	w.snapshot.SetCapacity(report)
}

// where returns where a volume can be used.
func (w *clusterState) where() string {
	return w.maybe(0.6, "on=a", "on=b", "on=c", "in="+w.zone())
}

func (w *clusterState) zone() string { return w.one("z1", "z2", "z3") }

func (w *clusterState) size() string { return " size=" + w.one("1Gi", "2Gi", "3Gi") }
