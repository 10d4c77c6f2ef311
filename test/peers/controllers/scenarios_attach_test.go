package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// attachments returns the names of the attachments of the scenario's volumes.
func (s *side) attachments() []string {
	var names []string
	s.recorder.read(s.place, func(p *record) {
		for _, o := range p.live {
			if o.GetKind() == "VolumeAttachment" {
				names = append(names, o.GetName())
			}
		}
	})
	return names
}

// attached waits until volumes have that many attachments.
func attached(n int) step {
	return step{what: fmt.Sprintf("until there are %d attachments", n), until: func(s *side) bool { return len(s.attachments()) == n }}
}

// driver lets the driver of the volumes patch all attachments, or their status.
func driver(does, text string, subs ...string) step {
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(fmt.Sprintf("%v in:\n%s", err, text))
	}
	return step{what: "the driver " + does, do: func(ctx context.Context, s *side) error {
		var errs []error
		for _, name := range s.attachments() {
			_, err := s.resource("VolumeAttachment").Patch(ctx, name, types.MergePatchType, content, metav1.PatchOptions{}, subs...)
			if !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}}
}

// attachments are scenarios of the volumes of a CSI driver and the nodes PLACE-a and
// PLACE-b.
func attachments() (all []scenario) {
	attaches := driver("attaches", `{status: {attached: true, attachError: null}}`, "status")
	fails := driver("fails", `{status: {attached: false, attachError: {message: no disk}}}`, "status")
	holds, releases := driver("holds", `{metadata: {finalizers: [example.com/attacher]}}`), driver("releases", `{metadata: {finalizers: null}}`)
	node := func(name, annotations string) []step {
		return []step{
			create(`{apiVersion: v1, kind: Node, metadata: {name: PLACE-%s, labels: {topology.kubernetes.io/zone: PLACE}, annotations: {%s}}}`, name, annotations),
			patch("Node/status PLACE-"+name, `{status: {conditions: [{type: Ready, status: "True", reason: Test}]}}`),
		}
	}
	uses := func(name, volumes string) step {
		return patch("Node/status PLACE-"+name, `{status: {volumesInUse: `+volumes+`}}`)
	}
	volume := func(name, handle, mode string) []step {
		return []step{
			create(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: PLACE-%s}, spec: {storageClassName: PLACE-c, accessModes: [%s], capacity: {storage: 5Gi}, persistentVolumeReclaimPolicy: Retain, csi: {driver: PLACE-d, volumeHandle: PLACE-%s}}}`, name, mode, handle),
			create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %[1]s}, spec: {volumeName: PLACE-%[1]s, storageClassName: PLACE-c, accessModes: [%[2]s], resources: {requests: {storage: 2Gi}}}}`, name, mode),
		}
	}
	pod := func(name, node, claim string) step {
		return create(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: PLACE-%s, terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}], volumes: [{name: v, persistentVolumeClaim: {claimName: %s}}]}}`, name, node, claim)
	}
	const managed = `volumes.kubernetes.io/controller-managed-attach-detach: "true"`
	begin := slices.Concat(node("a", managed), node("b", managed), volume("v", "h", "ReadWriteOnce"))
	inUse := uses("a", `["kubernetes.io/csi/PLACE-d^PLACE-h"]`)
	first := []step{pod("first", "a", "v"), attached(1), attaches, answer("run", "first"), inUse}
	ends := []step{answer("kill", "first"), answer("stop", "first"), uses("a", "[]"), attached(0)}
	all = each("attachment", begin, []operation{
		{"of a pod that ends", slices.Concat(first, ends)},
		{"of a pod that finishes", slices.Concat(first, []step{answer("finish", "first"), uses("a", "[]"), attached(0)})},
		{"of a pod that was deleted before its driver attached it", []step{pod("first", "a", "v"), attached(1), answer("kill", "first"), answer("stop", "first")}},
		{"that fails at first", []step{pod("first", "a", "v"), attached(1), fails, attaches}},
		{"that its driver holds", slices.Concat(first, []step{holds}, ends[:3], []step{pod("second", "a", "v"), releases, attached(1), attaches})},
		{"of two pods of a node", slices.Concat(first, []step{pod("second", "a", "v"), answer("run", "second"), answer("kill", "first"), answer("stop", "first")})},
		{"that another node waits for", slices.Concat(first, []step{pod("second", "b", "v")}, ends[:3], []step{attached(1), attaches, answer("run", "second")})},
		{"of a node that is out of service", slices.Concat(first, []step{
			patch("Node/status PLACE-a", `{status: {conditions: [{type: Ready, status: "False", reason: Test}]}}`), answer("kill", "first"),
			// kube-controller-manager looks for such nodes every 20 seconds.
			patch("Node PLACE-a", "{spec: {taints: [{key: node.kubernetes.io/out-of-service, value: x, effect: NoExecute}]}}").then(attached(0)),
		})},
		{"of a claim that is deleted in use", slices.Concat(first, []step{remove("PersistentVolumeClaim v", background)}, ends)},
	})
	return append(all,
		scenario{"attachment of a shared volume", slices.Concat(node("a", managed), node("b", managed), volume("v", "h", "ReadWriteMany"), first, []step{
			pod("second", "b", "v"), attached(2), attaches, answer("run", "second"), answer("kill", "first"), answer("stop", "first"), uses("a", "[]"), attached(1),
		})},
		scenario{"attachment of two volumes of a handle", slices.Concat(begin, volume("w", "h", "ReadWriteOnce"), first, []step{pod("second", "b", "w")}, ends[:3], []step{attached(1), attaches})},
		scenario{"attachment that the node makes", slices.Concat(node("a", ""), volume("v", "h", "ReadWriteOnce"), []step{pod("first", "a", "v"), answer("run", "first")})},
		scenario{"attachment to a node with another value of the annotation", slices.Concat(node("a", strings.Replace(managed, "true", "false", 1)), volume("v", "h", "ReadWriteOnce"), []step{pod("first", "a", "v"), attached(1)})},
		scenario{"attachment that the driver does not need", slices.Concat(
			[]step{create(`{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: PLACE-d}, spec: {attachRequired: false}}`)},
			node("a", managed), volume("v", "h", "ReadWriteOnce"), []step{pod("first", "a", "v"), answer("run", "first")},
		)},
	)
}
