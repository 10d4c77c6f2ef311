package config

import (
	"strings"

	kubeletapis "k8s.io/kubelet/pkg/apis"

	"svc.dev/svc/svclet/podnetwork/plan"
)

func modeSettings() []Setting {
	return []Setting{
		{Flag: "svcconfig", Also: []string{"kubeconfig"},
			Usage: "Path to a kubeconfig file, specifying how to connect to the API server. Without it svclet runs standalone, with static pods only."},
		{Flag: "bootstrap-svcconfig", Also: []string{"bootstrap-kubeconfig"},
			Usage: "Path to a kubeconfig file with which svclet requests a client certificate if the file of --svcconfig does not exist, or its certificate has expired or is rejected. On success the file of --svcconfig is written; the certificate and its key are in --cert-dir."},
		{Flag: "config", Usage: "Path to the configuration file (kind SvcletConfiguration, or kubelet's KubeletConfiguration). Flags override it. A relative path starts at the working directory."},
		{Flag: "config-dir", Usage: "Directory of drop-in configuration files: files named *.conf, in lexical order, subdirectories included, override the file of --config field by field. " +
			"Default: the directory that the environment variable SVCLET_CONFIG_DROPIN_DIR_ALPHA names (alpha)."},
		{Flag: "root-dir", Usage: "Directory of svclet's own files, such as the volumes of pods.", Rule: absoluteRoot()},
		{Flag: "runonce", Field: "runOnce", Deprecated: true,
			Usage: "Start the static pods, wait until they run or have ended, and exit: with code 0 if none has failed. Excludes --enable-server and --svcconfig."},
		{Flag: "feature-gates", Field: "featureGates", Deprecated: true, Usage: "Feature gates, as Name=true,Other=false. A gate that is not named keeps the value of the configuration file."},
		{Flag: "version", Usage: "Print the version and exit (true, or raw for all its parts), or report the release vX.Y.Z."},
		{Flag: "help", Short: "h", Usage: "Print this help."},
	}
}

func nodeSettings() []Setting {
	return []Setting{
		{Flag: "hostname-override", Rule: nodeName(), Usage: "Name of the node. Default: the host name."},
		{Flag: "node-ip", Rule: nodeIPs(),
			Usage: "Address of the node, or one of each IP family. :: prefers the default IPv6 address. Default: the default IPv4 address, else the IPv6 one."},
		{Flag: "node-labels", Rule: nodeLabels(), Usage: "Labels that the node is registered with, as key=value,key2=value2 (alpha). In the domains kubernetes.io and k8s.io only these are allowed: " +
			strings.Join(kubeletapis.KubeletLabels(), ", ") + ", and those below " + strings.Join(kubeletapis.KubeletLabelNamespaces(), " and ") + "."},
		{Flag: "cloud-provider", Deprecated: true, Rule: oneOf("", CloudExternal),
			Usage: "Empty, or external: a cloud controller manager completes the node. It is registered with the taint node.cloudprovider.kubernetes.io/uninitialized and keeps the addresses that the controller writes."},
		{Flag: "provider-id", Field: "providerID", Deprecated: true, Usage: "Unique identifier of the machine, as an external provider knows it."},
		{Flag: "register-node", Field: "registerNode", Deprecated: true, Usage: "Register the node with the API server. Has no effect without --svcconfig."},
		{Flag: "register-schedulable", Deprecated: true, Usage: "Register the node as schedulable. Has no effect with --register-node=false. --register-with-taints=node.kubernetes.io/unschedulable=:NoSchedule replaces it."},
		{Flag: "service-proxy", Usage: "Route the addresses of services to their endpoints with nftables, in place of kube-proxy. Needs Linux 5.13 or newer and nftables 1.0.1 or newer."},
		{Flag: "network-policy", Usage: "Filter the connections of this node's pods with nftables, as network policies require. Needs Linux 5.13 or newer and nftables 1.0.1 or newer."},
		{Flag: "pod-network", Rule: oneOf(plan.Modes()...),
			Usage: "How the pods of this node and those of other nodes reach each other: host-routes, by routes to nodes on the same network; vxlan, in UDP packets between nodes (port 8472); or none, which leaves that to another network. The same on all nodes. Needs pod CIDRs of nodes (--allocate-node-cidrs of the control plane) and, with svclet's own containerd, Linux 5.13 or newer and nftables 1.0.1 or newer."},
		{Flag: "dns", Usage: "Answer questions about names of the cluster: --service-proxy routes the service kube-system/kube-dns to this node's own DNS server while no pod serves it. Without --cluster-dns, pods use the address of that service, also with --service-proxy only; the default of --cluster-domain becomes cluster.local."},
		{Flag: "register-with-taints", Field: "registerWithTaints", Deprecated: true, Rule: taints(), Usage: "Taints that the node is registered with, as key=value:effect,key2=:effect."},
		{Flag: "node-status-update-frequency", Field: "nodeStatusUpdateFrequency", Deprecated: true, Rule: positive(),
			Usage: "How often the status of the node is computed. It is written when it has changed. Keep it well below the node controller's grace period."},
		{Field: "nodeStatusReportFrequency", Rule: positive(),
			Usage: "How often the status of the node is written if it has not changed. Default: 5m0s, or nodeStatusUpdateFrequency if a file sets that."},
		{Field: "nodeLeaseDurationSeconds", Rule: atLeast(1), Usage: "Duration of the node's Lease, in seconds: the node is considered healthy for so long after a renewal."},
		{Flag: "node-status-max-images", Field: "nodeStatusMaxImages", Deprecated: true, Rule: atLeast(-1), Usage: "Maximum number of images in the node's status. -1 means no limit, 0 none."},
		{Flag: "enable-controller-attach-detach", Field: "enableControllerAttachDetach", Deprecated: true,
			Usage: "Let the attach/detach controller, and not svclet, attach volumes to the node."},
	}
}

func sourceSettings() []Setting {
	return []Setting{
		{Flag: "pod-manifest-path", Field: "staticPodPath", Deprecated: true, Usage: "Directory of static pod manifests, or one such file. Files whose names begin with a dot are ignored."},
		{Flag: "manifest-url", Field: "staticPodURL", Deprecated: true, Rule: webURL(), Usage: "URL of further static pod manifests."},
		{Flag: "manifest-url-header", Field: "staticPodURLHeader", Deprecated: true,
			Usage: "HTTP headers for --manifest-url, as name:value,name2:value2. May be given several times; headers with the same name are sent in the order given."},
		{Flag: "file-check-frequency", Field: "fileCheckFrequency", Deprecated: true, Rule: positive(), Usage: "How often --pod-manifest-path is read, whether or not it has changed."},
		{Flag: "http-check-frequency", Field: "httpCheckFrequency", Deprecated: true, Rule: positive(), Usage: "How often --manifest-url is read."},
	}
}

func apiSettings() []Setting {
	unlimited := "By default there is no limit, because the API server has flow control. A value set in the file or by flag applies to all requests but events and heartbeats."
	return []Setting{
		{Flag: "svc-api-qps", Also: []string{"kube-api-qps"}, Field: "kubeAPIQPS", Deprecated: true, Rule: atLeast(0),
			Usage: "Maximum requests to the API server per second. " + unlimited + " 0 means 50."},
		{Flag: "svc-api-burst", Also: []string{"kube-api-burst"}, Field: "kubeAPIBurst", Deprecated: true, Rule: atLeast(0),
			Usage: "Burst of requests to the API server, if there is a limit. 0 means 100."},
		{Flag: "svc-api-content-type", Also: []string{"kube-api-content-type"}, Field: "contentType", Deprecated: true,
			Rule:  oneOf("application/vnd.svc.protobuf", "application/vnd.kubernetes.protobuf", "application/json"),
			Usage: "Content type of requests to the API server. The first two are names of the same format, and are sent as the second, which every API server accepts."},
		{Flag: "event-qps", Field: "eventRecordQPS", Deprecated: true, Rule: atLeast(0), Usage: "Maximum events written per second. 0 means 50."},
		{Flag: "event-burst", Field: "eventBurst", Deprecated: true, Rule: atLeast(0), Usage: "Burst of events. 0 means 100."},
		{Field: "configMapAndSecretChangeDetectionStrategy", Rule: oneOf("Watch"), Usage: "How changes of ConfigMaps and Secrets are detected. svclet always watches those that its pods refer to."},
	}
}
