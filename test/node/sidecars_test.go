package node

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/csi/csitest"
	"svc.dev/svc/test/launch"
)

// The modules that have the manifests of the sidecars.
const (
	attacherModule    = "github.com/kubernetes-csi/external-attacher/v4"
	provisionerModule = "github.com/kubernetes-csi/external-provisioner/v6"
	resizerModule     = "github.com/kubernetes-csi/external-resizer/v2"
	snapshotterModule = "github.com/kubernetes-csi/external-snapshotter/v8"
	snapshotsModule   = "github.com/kubernetes-csi/external-snapshotter/client/v8"
)

// csiSystem is a storage system, its CSI driver on the suite's node and the sidecars that
// Kubernetes publishes for drivers. These run as processes of this machine, each as its own
// service account with the roles that it is published with.
type csiSystem struct {
	space
	backend *csitest.Backend
	options csitest.Options
	driver  *csitest.Driver
	// dir has the kubeconfigs of the sidecars.
	dir      string
	sidecars map[string]*launch.Process
	args     map[string][]string
}

// newCSISystem starts a driver, without sidecars. The storage classes NAME-immediate and
// NAME-waiting are of the driver NAME.csi.example.
func newCSISystem(ctx context.Context, name string, change func(*csitest.Options)) *csiSystem {
	GinkgoHelper()
	own := newDir()
	c := &csiSystem{space: newSpace(ctx), dir: newDir(), sidecars: map[string]*launch.Process{}, args: map[string][]string{}}
	c.options = driverOptions(name+".csi.example", own)
	c.options.NodeID = nodeName()
	c.options.Capabilities = append(c.options.Capabilities, spec.NodeServiceCapability_RPC_EXPAND_VOLUME)
	c.backend = &csitest.Backend{Dir: own, Grows: spec.PluginCapability_VolumeExpansion_ONLINE, Capabilities: []spec.ControllerServiceCapability_RPC_Type{
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		spec.ControllerServiceCapability_RPC_EXPAND_VOLUME, spec.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, spec.ControllerServiceCapability_RPC_CLONE_VOLUME,
		spec.ControllerServiceCapability_RPC_GET_CAPACITY,
	}}
	c.options.Backend = c.backend
	if change != nil {
		change(&c.options)
	}
	manifests := strings.ReplaceAll(`
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: NAME.csi.example}
spec: {attachRequired: true, fsGroupPolicy: File, storageCapacity: CAPACITY}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: NAME-immediate}
provisioner: NAME.csi.example
parameters: {kind: fast}
allowVolumeExpansion: true
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: NAME-waiting}
provisioner: NAME.csi.example
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
`, "NAME", name)
	capacity := "false"
	if c.options.Topology != nil {
		capacity = "true"
	}
	manifests = strings.ReplaceAll(manifests, "CAPACITY", capacity)
	c.space.apply(ctx, manifests)
	DeferCleanup(func(ctx SpecContext) {
		_, errOut, err := kubectl.Run(ctx, manifests, "delete", "--filename=-")
		Expect(err).NotTo(HaveOccurred(), errOut)
	})
	c.startDriver(ctx)
	DeferCleanup(func() { c.driver.Stop() })
	return c
}

// startDriver starts the driver, and waits until the node has it.
func (c *csiSystem) startDriver(ctx context.Context) {
	GinkgoHelper()
	var err error
	c.driver, err = csitest.Start(c.options)
	Expect(err).NotTo(HaveOccurred())
	Eventually(c.driver.Registered).Should(ContainElement(HaveField("PluginRegistered", BeTrue())))
	Eventually(func() (*storagev1.CSINode, error) {
		n := &storagev1.CSINode{}
		return n, client.Get(ctx, ctrlclient.ObjectKey{Name: nodeName()}, n)
	}).Should(HaveField("Spec.Drivers", ContainElement(HaveField("Name", c.options.Name))))
}

// clusterNames matches the names of the cluster's objects of the sidecars' manifests.
var clusterNames = regexp.MustCompile(`(?m)^(\s+name: )((?:external|snapshot)-\S+-runner|(?:csi|snapshot)-\S+-role)$`)

// permit applies the manifest of the roles of a sidecar, in the namespace of the system.
func (c *csiSystem) permit(ctx context.Context, module, manifest string) {
	GinkgoHelper()
	dir, err := launch.ToolModule(ctx, "csi", module)
	Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(filepath.Join(dir, "deploy/kubernetes", manifest))
	Expect(err).NotTo(HaveOccurred())
	roles := clusterNames.ReplaceAllString(string(content), "${1}${2}-"+c.name)
	roles = regexp.MustCompile(`namespace: (default|kube-system)\b`).ReplaceAllString(roles, "namespace: "+c.name)
	roles = strings.ReplaceAll(roles, "    name: snapshot-controller\nroleRef:\n  kind: Role\n", "    name: snapshot-controller\n    namespace: "+c.name+"\nroleRef:\n  kind: Role\n")
	c.space.apply(ctx, roles)
	DeferCleanup(func(ctx SpecContext) {
		_, errOut, err := c.kubectl().Run(ctx, roles, "delete", "--filename=-", "--ignore-not-found")
		Expect(err).NotTo(HaveOccurred(), errOut)
	})
}

// sidecar starts a sidecar with arguments or, without, again. It gives it a new kubeconfig.
func (c *csiSystem) sidecar(ctx context.Context, program string, args ...string) {
	GinkgoHelper()
	if len(args) > 0 {
		c.args[program] = args
	}
	if running := c.sidecars[program]; running != nil {
		running.Kill()
	}
	file := filepath.Join(c.dir, program)
	token := strings.TrimSpace(c.run(ctx, "create", "token", program))
	Expect(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"svc": {Server: node.Config.Host, CertificateAuthorityData: node.Config.CAData, CertificateAuthority: node.Config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"sidecar": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"svc": {Cluster: "svc", AuthInfo: "sidecar"}},
		CurrentContext: "svc",
	}, file)).To(Succeed())
	path, err := launch.Peer(program)
	Expect(err).NotTo(HaveOccurred())
	c.sidecars[program], err = launch.Start([]string{"NAMESPACE=" + c.name}, path, append([]string{"--kubeconfig=" + file, "-v=4"}, c.args[program]...)...)
	Expect(err).NotTo(HaveOccurred())
}

// startSidecars starts the sidecars that a driver has in its pods.
func (c *csiSystem) startSidecars(ctx context.Context) {
	GinkgoHelper()
	DeferCleanup(func() {
		for _, process := range c.sidecars {
			process.Kill()
		}
	})
	for program, published := range map[string][2]string{
		"csi-attacher":    {attacherModule, "rbac.yaml"},
		"csi-provisioner": {provisionerModule, "rbac.yaml"},
		"csi-resizer":     {resizerModule, "rbac.yaml"},
	} {
		c.permit(ctx, published[0], published[1])
		c.sidecar(ctx, program, "--csi-address="+c.driver.Endpoint(), "--leader-election", "--leader-election-namespace="+c.name, "--timeout=5s")
	}
	DeferCleanup(func() { Eventually(c.backend.Volumes).Should(BeEmpty()) }) // the claims go with the namespaces of the specs
}

// startSnapshots starts the controller of snapshots and the sidecar that makes them.
func (c *csiSystem) startSnapshots(ctx context.Context) {
	GinkgoHelper()
	dir, err := launch.ToolModule(ctx, "csi", snapshotsModule)
	Expect(err).NotTo(HaveOccurred())
	definitions := filepath.Join(dir, "config/crd")
	run(ctx, "apply", "--server-side", "--kustomize="+definitions)
	DeferCleanup(func(ctx SpecContext) { run(ctx, "delete", "--kustomize="+definitions) })
	c.permit(ctx, snapshotterModule, "snapshot-controller/rbac-snapshot-controller.yaml")
	c.sidecar(ctx, "snapshot-controller", "--leader-election", "--leader-election-namespace="+c.name)
	c.permit(ctx, snapshotterModule, "csi-snapshotter/rbac-csi-snapshotter.yaml")
	c.sidecar(ctx, "csi-snapshotter", "--csi-address="+c.driver.Endpoint(), "--leader-election", "--leader-election-namespace="+c.name)
}

// restartSidecars starts all sidecars again, as kubelet does after they have lost the driver or
// the API server.
func (c *csiSystem) restartSidecars(ctx context.Context) {
	GinkgoHelper()
	for program := range c.args {
		c.sidecar(ctx, program)
	}
}

// report adds what the sidecars have printed to the report of a spec that failed.
func (c *csiSystem) report(report SpecReport) {
	if c == nil || !report.Failed() {
		return
	}
	for program, process := range c.sidecars {
		AddReportEntry(program+" printed", lastLines(process.Output()))
	}
}
