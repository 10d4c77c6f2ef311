package core

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/resource/resourcetest"
)

const volume = `
metadata: {name: data}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], nfs: {server: a, path: /b}}
`

func TestPersistentVolumeRules(t *testing.T) {
	resourcetest.Rules(t, persistentVolumes, volume, []resourcetest.Rule{
		{Name: "a volume is accepted"},
		{Name: "a volume has a size and a way to mount it", Change: `spec: {capacity: null, accessModes: null}`, Want: []string{
			"spec.accessModes: Required value", "spec.capacity: Required value", `spec.capacity: Unsupported value: null: supported values: "storage"`}},
		{Name: "the size is positive", Change: `spec: {capacity: {storage: 0}}`, Want: []string{`spec.capacity[storage]: Invalid value: "0": must be greater than zero`}},
		{Name: "access modes are known and agree", Change: `spec: {accessModes: [ReadWriteOncePod, ReadOnlyMany, Any]}`, Want: []string{
			`spec.accessModes: Unsupported value: "Any": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`,
			"spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"}},
		{Name: "policy, mode and class are known", Change: `spec: {persistentVolumeReclaimPolicy: Keep, volumeMode: Tape, storageClassName: a_b}`, Want: []string{
			`spec.persistentVolumeReclaimPolicy: Unsupported value: "Keep": supported values: "Delete", "Recycle", "Retain"`,
			`spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`,
			`spec.storageClassName: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
		{Name: "a volume has a source", Change: `spec: {nfs: null}`, Want: []string{"spec: Required value: must specify a volume type"}},
		{Name: "a volume has one source", Change: `spec: {hostPath: {path: /a}}`, Want: []string{"spec.nfs: Forbidden: may not specify more than 1 volume type"}},
		{Name: "a source is validated as in a pod", Change: `spec: {nfs: null, hostPath: {path: /a/../b}}`, Want: []string{
			`spec.hostPath.path: Invalid value: "/a/../b": must not contain '..'`}},
		{Name: "the root is not recycled", Change: `spec: {nfs: null, hostPath: {path: //}, persistentVolumeReclaimPolicy: Recycle}`, Want: []string{
			"spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"}},
		{Name: "a local volume is on a node", Change: `spec: {nfs: null, local: {path: ""}}`, Want: []string{
			"spec.local.path: Required value", "spec.nodeAffinity: Required value: Local volume requires node affinity"}},
		{Name: "an affinity is required", Change: `spec: {nodeAffinity: {}}`, Want: []string{"spec.nodeAffinity.required: Required value: must specify required node constraints"}},
		{Name: "a CSI volume names its driver and secrets", Change: `spec: {nfs: null, csi: {driver: "", volumeHandle: "", nodePublishSecretRef: {name: a}}}`, Want: []string{
			"spec.csi.driver: Required value", "spec.csi.volumeHandle: Required value", "spec.csi.nodePublishSecretRef.namespace: Required value"}},
		{Name: "other secrets have namespaces too", Change: `spec: {nfs: null, cinder: {volumeID: a, secretRef: {name: b}}}`, Want: []string{"spec.cinder.secretRef.namespace: Required value"}},
		{Name: "the secret of an iSCSI target has a name", Change: `spec: {nfs: null, iscsi: {targetPortal: a, iqn: "iqn.2001-04.com.example:storage", secretRef: {namespace: b}}}`, Want: []string{
			"spec.iscsi.secretRef.name: Required value"}},
		{Name: "only the first source is validated", Change: `spec: {storageos: {secretRef: {}}}`, Want: []string{"spec.storageos: Forbidden: may not specify more than 1 volume type"}},
		{Name: "a size is not negative", Change: `spec: {capacity: {storage: "-1"}}`, Want: []string{
			"spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity", `spec.capacity[storage]: Invalid value: "-1": must be greater than zero`}},
		{Name: "endpoints are in a namespace", Change: `spec: {nfs: null, glusterfs: {endpoints: a, path: /b, endpointsNamespace: ""}}`, Want: []string{
			`spec.glusterfs.endpointsNamespace: Invalid value: "": if the endpointnamespace is set, it must be a valid namespace name`}},
		{Name: "attributes classes are for CSI", Change: `spec: {volumeAttributesClassName: fast}`, Want: []string{
			"spec.csi: Required value: has to be specified when using volumeAttributesClassName"}},
		{Name: "nodes are chosen for life", Update: true,
			Change: `spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [b]}]}]}}}`,
			Was:    `spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}}`,
			Want:   []string{`nodeAffinity: Invalid value: {"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["b"]}]}]}}: field is immutable, except for updating from beta label to GA`}},
		{Name: "by a label that may get its stable name", Update: true,
			Change: `spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a]}]}]}}}`,
			Was:    `spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [a]}]}]}}}`},
		{Name: "but not lose it", Update: true,
			Change: `spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [a]}]}]}}}`,
			Was:    `spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a]}]}]}}}`,
			Want:   []string{`nodeAffinity: Invalid value: {"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"failure-domain.beta.kubernetes.io/zone","operator":"In","values":["a"]}]}]}}: field is immutable, except for updating from beta label to GA`}},
		{Name: "size and policy may change", Update: true, Change: `spec: {capacity: {storage: 2Gi}, persistentVolumeReclaimPolicy: Delete}`},
		{Name: "the secret for growing may be added", Update: true, Was: `spec: {nfs: null, csi: {driver: a, volumeHandle: b}}`,
			Change: `spec: {nfs: null, csi: {driver: a, volumeHandle: b, controllerExpandSecretRef: {name: c, namespace: d}}}`},
		{Name: "the mode stays", Update: true, Change: `spec: {volumeMode: Block}`, Want: []string{`volumeMode: Invalid value: "Block": field is immutable`}},
	})
}

func TestPersistentVolumeSourceIsImmutable(t *testing.T) {
	k := persistentVolumes.Kind()
	old, v := resourcetest.Object(t, k, volume), resourcetest.Object(t, k, volume, `spec: {nfs: {path: /c}}`)
	errs := k.ValidateUpdate(v, old)
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n") {
		t.Errorf("errors are %v", errs)
	}
}

func TestPersistentVolumeNotesWhenItsPhaseChanges(t *testing.T) {
	k := persistentVolumes.Kind()
	old := resourcetest.Object(t, k, volume).(*corev1.PersistentVolume)
	k.PrepareCreate(t.Context(), resourcetest.Env(), old)
	if at := old.Status.LastPhaseTransitionTime; at == nil || !at.Time.Equal(resourcetest.Now) {
		t.Fatalf("a new volume has the time %v of its first phase", at)
	}
	*old.Status.LastPhaseTransitionTime = metav1.Unix(1, 0)
	same := old.DeepCopy()
	same.Status.LastPhaseTransitionTime = nil
	if k.PrepareStatus(resourcetest.Env(), same, old); !same.Status.LastPhaseTransitionTime.Equal(old.Status.LastPhaseTransitionTime) {
		t.Error("the time changed without the phase")
	}
	bound := old.DeepCopy()
	bound.Status.Phase = corev1.VolumeBound
	if k.PrepareStatus(resourcetest.Env(), bound, old); !bound.Status.LastPhaseTransitionTime.Time.Equal(resourcetest.Now) {
		t.Error("the phase changed without the time")
	}
}

const claim = `
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}
`

func TestPersistentVolumeClaimRules(t *testing.T) {
	const bound = `{spec: {volumeName: v}, status: {phase: Bound, capacity: {storage: 2Gi}}}`
	resourcetest.Rules(t, persistentVolumeClaims, claim, []resourcetest.Rule{
		{Name: "a claim is accepted"},
		{Name: "a claim says how much and how", Change: `spec: {accessModes: null, resources: null}`, Want: []string{
			"spec.accessModes: Required value: at least 1 access mode is required", "spec.resources[storage]: Required value"}},
		{Name: "how much is positive", Change: `spec: {resources: {requests: {storage: 0}}}`, Want: []string{`spec.resources[storage]: Invalid value: "0": must be greater than zero`}},
		{Name: "a source is complete", Change: `spec: {dataSourceRef: {kind: "", name: ""}}`, Want: []string{
			"spec.dataSource.name: Required value", "spec.dataSource.kind: Required value",
			"spec.dataSourceRef.name: Required value", "spec.dataSourceRef.kind: Required value",
			`spec.dataSource: Invalid value: "": must be 'PersistentVolumeClaim' when referencing the default apiGroup`,
			`spec.dataSourceRef: Invalid value: "": must be 'PersistentVolumeClaim' when referencing the default apiGroup`}},
		{Name: "two names of a source agree", Change: `spec: {dataSource: {kind: PersistentVolumeClaim, name: a}, dataSourceRef: {kind: PersistentVolumeClaim, name: b}}`,
			Want: []string{`spec: Invalid value: "spec.dataSource": must match dataSourceRef`}},
		{Name: "a claim is bound once", Update: true, Change: `spec: {volumeName: v}`},
		{Name: "a claim without a class gets one", Update: true, Change: `spec: {storageClassName: fast}`},
		{Name: "a bound claim grows", Update: true, Was: bound, Change: `{spec: {volumeName: v, resources: {requests: {storage: 3Gi}}}, status: {phase: Bound, capacity: {storage: 2Gi}}}`},
		{Name: "and never shrinks below what it has", Update: true, Was: bound, Change: `{spec: {volumeName: v, resources: {requests: {storage: 1Gi}}}, status: {phase: Bound, capacity: {storage: 2Gi}}}`,
			Want: []string{"spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"}},
		{Name: "a resize goes on in known steps", Status: true, Change: `status: {allocatedResources: {cpu: "1"}, allocatedResourceStatuses: {storage: Soon}}`, Want: []string{
			`status.allocatedResources[cpu]: Unsupported value: "cpu": supported values: "storage"`,
			`status.allocatedResourceStatuses[storage]: Unsupported value: "Soon": supported values: "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending"`}},
	})
	k := persistentVolumeClaims.Kind()
	for _, change := range []string{`spec: {accessModes: [ReadOnlyMany]}`, `spec: {resources: {requests: {storage: 3Gi}}}`, `spec: {selector: {matchLabels: {a: b}}}`} {
		errs := k.ValidateUpdate(resourcetest.Object(t, k, claim, change), resourcetest.Object(t, k, claim))
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n") {
			t.Errorf("%s: errors are %v", change, errs)
		}
	}
}

func TestPersistentVolumeClaimSourceHasTwoNames(t *testing.T) {
	k := persistentVolumeClaims.Kind()
	for _, test := range []struct{ rule, change, source, ref string }{
		{"the old name is copied to the new one", `spec: {dataSource: {kind: PersistentVolumeClaim, name: a}}`, "a", "a"},
		{"the new name is copied to the old one", `spec: {dataSourceRef: {apiGroup: example.com, kind: Seed, name: a}}`, "a", "a"},
		{"the old name means a claim or a snapshot, or nothing", `spec: {dataSource: {apiGroup: example.com, kind: Seed, name: a}}`, "", ""},
		{"a source elsewhere is dropped", `spec: {dataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: b}}`, "", ""},
	} {
		c := resourcetest.Object(t, k, claim, test.change).(*corev1.PersistentVolumeClaim)
		k.PrepareCreate(t.Context(), resourcetest.Env(), c)
		source, ref := "", ""
		if c.Spec.DataSource != nil {
			source = c.Spec.DataSource.Name
		}
		if c.Spec.DataSourceRef != nil {
			ref = c.Spec.DataSourceRef.Name
		}
		if source != test.source || ref != test.ref {
			t.Errorf("%s: names are %q and %q", test.rule, source, ref)
		}
	}
}
