package config

import (
	"strings"

	kubeletapis "k8s.io/kubelet/pkg/apis"
)

func modeSettings() []Setting {
	return []Setting{
		{Flag: "svcconfig", Also: []string{"kubeconfig"},
			Usage: "Connection file for the API server, in the format of a kubeconfig. Without it svclet runs by itself (standalone): the pods of files and of a URL."},
		{Flag: "config", Usage: "Configuration file (kind SvcletConfiguration; kubelet's own is taken, too). Flags override it. A relative path begins at the working directory."},
		{Flag: "config-dir", Usage: "Directory of drop-ins: files named *.conf, in lexical order, subdirectories included, that override the file of --config field by field. " +
			"Default: the directory that the environment variable SVCLET_CONFIG_DROPIN_DIR_ALPHA names (alpha)."},
		{Flag: "root-dir", Usage: "Directory of svclet's own files, as the volumes of pods.", Rule: absoluteRoot()},
		{Flag: "runonce", Field: "runOnce", Deprecated: true,
			Usage: "Start the pods of files and of a URL, wait until they run or have ended, and exit: 0 if none has failed. Excludes --enable-server and --svcconfig."},
		{Flag: "feature-gates", Field: "featureGates", Deprecated: true, Usage: "Feature gates, as Name=true,Other=false. A gate that is not named stays as the file says."},
		{Flag: "version", Usage: "Print the version and exit (true; raw for all there is to know), or report the release vX.Y.Z from now on."},
		{Flag: "help", Short: "h", Usage: "Print this help."},
	}
}

func nodeSettings() []Setting {
	return []Setting{
		{Flag: "hostname-override", Rule: nodeName(), Usage: "Name of the node. Default: that of the host."},
		{Flag: "node-ip", Rule: nodeIPs(),
			Usage: "Address of the node, or one of each IP family. :: prefers the default IPv6 address. Default: the default IPv4 address, else the IPv6 one."},
		{Flag: "node-labels", Rule: nodeLabels(), Usage: "Labels that the node is registered with, as key=value,key2=value2 (alpha). In the domains kubernetes.io and k8s.io only these are allowed: " +
			strings.Join(kubeletapis.KubeletLabels(), ", ") + ", and those below " + strings.Join(kubeletapis.KubeletLabelNamespaces(), " and ") + "."},
		{Flag: "provider-id", Field: "providerID", Deprecated: true, Usage: "What identifies the node in a database of machines."},
		{Flag: "register-node", Field: "registerNode", Deprecated: true, Usage: "Register the node with the API server. Of no account without --svcconfig."},
		{Flag: "register-schedulable", Deprecated: true, Usage: "Register the node schedulable. Of no account with --register-node=false. --register-with-taints=node.kubernetes.io/unschedulable=:NoSchedule replaces it."},
		{Flag: "register-with-taints", Field: "registerWithTaints", Deprecated: true, Rule: taints(), Usage: "Taints that the node is registered with, as key=value:effect,key2=:effect."},
		{Flag: "node-status-update-frequency", Field: "nodeStatusUpdateFrequency", Deprecated: true, Rule: positive(),
			Usage: "How often the status of the node is computed. It is written when it has changed. Keep it well below the node controller's grace period."},
		{Field: "nodeStatusReportFrequency", Rule: positive(),
			Usage: "How often the status of the node is written although it has not changed. Default: 5m0s, or nodeStatusUpdateFrequency if a file sets that."},
		{Field: "nodeLeaseDurationSeconds", Rule: atLeast(1), Usage: "Seconds for which the node counts as alive without its Lease being renewed."},
		{Flag: "node-status-max-images", Field: "nodeStatusMaxImages", Deprecated: true, Rule: atLeast(-1), Usage: "Images that the status of the node names at most. -1 is all, 0 none."},
		{Flag: "enable-controller-attach-detach", Field: "enableControllerAttachDetach", Deprecated: true,
			Usage: "Tell controllers that they, and not svclet, attach volumes to the node."},
	}
}

func sourceSettings() []Setting {
	return []Setting{
		{Flag: "pod-manifest-path", Field: "staticPodPath", Deprecated: true, Usage: "Directory of static pods' files, or one such file. Files whose names begin with a dot do not count."},
		{Flag: "manifest-url", Field: "staticPodURL", Deprecated: true, Rule: webURL(), Usage: "URL of more static pods."},
		{Flag: "manifest-url-header", Field: "staticPodURLHeader", Deprecated: true,
			Usage: "HTTP headers for --manifest-url, as name:value,name2:value2. It may be given again; headers of one name are sent in the order in which they are given."},
		{Flag: "file-check-frequency", Field: "fileCheckFrequency", Deprecated: true, Rule: positive(), Usage: "How often --pod-manifest-path is read, changes or not."},
		{Flag: "http-check-frequency", Field: "httpCheckFrequency", Deprecated: true, Rule: positive(), Usage: "How often --manifest-url is read."},
	}
}

func apiSettings() []Setting {
	unlimited := "By default there is no limit: the API server has flow control. Once set, in the file or by flag, it holds for all but events and heartbeats."
	return []Setting{
		{Flag: "svc-api-qps", Also: []string{"kube-api-qps"}, Field: "kubeAPIQPS", Deprecated: true, Rule: atLeast(0),
			Usage: "Requests to the API server in a second. " + unlimited + " 0 stands for 50."},
		{Flag: "svc-api-burst", Also: []string{"kube-api-burst"}, Field: "kubeAPIBurst", Deprecated: true, Rule: atLeast(0),
			Usage: "Requests to the API server at once, if there is a limit. 0 stands for 100."},
		{Flag: "svc-api-content-type", Also: []string{"kube-api-content-type"}, Field: "contentType", Deprecated: true,
			Rule:  oneOf("application/vnd.svc.protobuf", "application/vnd.kubernetes.protobuf", "application/json"),
			Usage: "Content type of requests to the API server. The first two are two names of one format, and are sent under the second, which every API server knows."},
		{Flag: "event-qps", Field: "eventRecordQPS", Deprecated: true, Rule: atLeast(0), Usage: "Events that are written in a second. 0 stands for 50."},
		{Flag: "event-burst", Field: "eventBurst", Deprecated: true, Rule: atLeast(0), Usage: "Events that are written at once. 0 stands for 100."},
		{Field: "configMapAndSecretChangeDetectionStrategy", Rule: oneOf("Watch"), Usage: "How changes of config maps and secrets are learnt. svclet always watches those that its pods name."},
	}
}
