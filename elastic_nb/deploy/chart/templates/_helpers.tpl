{{- /* Names, labels, the config of the run, the pod of a node. Defaults are in values.yaml alone. */ -}}
{{- define "checks" -}}
{{- $e := .Values.elastic }}
{{- if gt (int64 $e.minNodes) (int64 $e.maxNodes) }}{{ fail "elastic.minNodes is more than elastic.maxNodes" }}{{ end }}
{{- if gt (int64 $e.minNodes) (int64 .Values.nodes) }}{{ fail "elastic.minNodes is more than nodes" }}{{ end }}
{{- end -}}

{{- define "namespace" -}}
{{- if .Values.deploymentNamespace }}{{ .Values.deploymentNamespace }}{{ else }}{{ .Release.Namespace }}{{ end -}}
{{- end -}}

{{- define "labels" -}}
app.kubernetes.io/name: elastic-nb
app.kubernetes.io/instance: {{ .Values.deploymentName }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "meta" -}}
name: {{ .Values.deploymentName }}
namespace: {{ include "namespace" . }}
labels: {{- include "labels" . | nindent 2 }}
{{- end -}}

{{- define "selector" -}}
{app.kubernetes.io/instance: {{ .Values.deploymentName }}, app.kubernetes.io/component: {{ .component }}}
{{- end -}}

{{- /* Steps of a replica as rounds of the config: they must divide. */ -}}
{{- define "rounds" -}}
{{- if mod (int64 .steps) (int64 .round) }}{{ fail (printf "diloco.%s = %d is no multiple of diloco.localSteps = %d" .name (int64 .steps) (int64 .round)) }}{{ end -}}
{{- div (int64 .steps) (int64 .round) -}}
{{- end -}}

{{- define "config" -}}
{{- if .Values.config }}{{ .Values.config }}{{ else -}}
{{- $d := .Values.diloco }}
{{- $low := has $d.optimMethod (list "sgd" "demo") }}
{{- $round := ternary $d.localSteps 1 $low }}
{{- if mod (int64 $d.batchSize) (int64 $d.perDeviceTrainBatchSize) }}{{ fail "diloco.perDeviceTrainBatchSize must divide diloco.batchSize" }}{{ end -}}
model:
  hub: {{ if $d.model }}{{ toJson $d.model }}{{ else }}null{{ end }}
data:
  dataset: {{ if $d.dataset }}{{ toJson $d.dataset }}{{ else }}null{{ end }}
  part: {{ if $d.datasetPart }}{{ toJson $d.datasetPart }}{{ else }}null{{ end }}
distributed:
  strategy: {{ ternary "diloco" $d.optimMethod $low }}
  device: {{ $d.device }}
training:
  batch_size: {{ mul (int64 $d.batchSize) (int64 $round) }}
  micro_batches: {{ div (int64 $d.batchSize) (int64 $d.perDeviceTrainBatchSize) }}
  lr: {{ toJson $d.lr }}
  warmup: {{ include "rounds" (dict "steps" $d.warmupSteps "round" $round "name" "warmupSteps") }}
  steps: {{ include "rounds" (dict "steps" $d.totalSteps "round" $round "name" "totalSteps") }}
  seed: {{ int64 $d.seed }}
  compile: {{ $d.compileModel }}
  compile_backend: {{ toJson $d.compileBackend }}
  compile_mode: {{ $d.compileMode }}
{{- if $low }}
lowcomm:
  inner_steps: {{ int64 $d.localSteps }}
  outer_lr: {{ toJson $d.outerLr }}
  compression: {{ if eq $d.optimMethod "demo" }}demo{{ else if $d.quantization }}int8{{ else }}none{{ end }}
  {{- if eq $d.optimMethod "demo" }}
  outer_momentum: 0
  {{- end }}
  fragments: {{ ternary 2 1 $d.asyncCommunication }}
  overlap: {{ ternary 1 0 $d.asyncCommunication }}
{{- end }}
checkpoint:
  checkpoint_interval: {{ include "rounds" (dict "steps" $d.checkpointInterval "round" $round "name" "checkpointInterval") }}
tracking:
  to: [{{ if $d.wandbLogging }}wandb{{ end }}]
  project: {{ toJson $d.wandbProjectName }}
  group: {{ if $d.wandbGroup }}{{ toJson $d.wandbGroup }}{{ else }}null{{ end }}
  run: {{ if $d.wandbRunId }}{{ toJson $d.wandbRunId }}{{ else }}null{{ end }}
  notes: {{ if $d.experimentDescription }}{{ toJson $d.experimentDescription }}{{ else }}null{{ end }}
  tags: {{ toJson $d.experimentTags }}
{{ end -}}
{{- end -}}

{{- /* Where the nodes meet. */ -}}
{{- define "endpoints" -}}
{{- $name := .Values.deploymentName }}{{ $space := include "namespace" . -}}
{{- if .Values.etcd.enabled -}}
{{- $all := list }}{{ range $i := until (int .Values.etcd.replicaCount) }}{{ $all = append $all (printf "http://%s-etcd-%d.%s-etcd.%s.svc:2379" $name $i $name $space) }}{{ end -}}
{{- join "," $all -}}
{{- else -}}
{{- if not .Values.elastic.etcd.externalEndpoint }}{{ fail "etcd.enabled = false takes elastic.etcd.externalEndpoint" }}{{ end -}}
{{- $all := list }}{{ range splitList "," .Values.elastic.etcd.externalEndpoint }}{{ $all = append $all (printf "%s://%s" $.Values.elastic.etcd.protocol (trim .)) }}{{ end -}}
{{- join "," $all -}}
{{- end -}}
{{- end -}}

{{- define "conf" -}}
{{- $e := .Values.elastic.etcd }}prefix={{ $e.prefix }}
{{- if not .Values.etcd.enabled -}}
{{- if $e.user }},user={{ $e.user }}{{ end -}}
{{- if $e.tlsSecret }},cacert=/etc/etcd-tls/ca.crt{{ if $e.clientCert }},ssl_cert=/etc/etcd-tls/tls.crt,ssl_cert_key=/etc/etcd-tls/tls.key{{ end }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* The secrets that the values give, by the variable that takes each. */ -}}
{{- define "made" -}}
{{- $v := .Values }}{{ $made := dict -}}
{{- if $v.diloco.wandbUserKey }}{{ $_ := set $made "WANDB_API_KEY" $v.diloco.wandbUserKey }}{{ end -}}
{{- if $v.diloco.huggingfaceToken }}{{ $_ := set $made "HF_TOKEN" $v.diloco.huggingfaceToken }}{{ end -}}
{{- if $v.secrets.s3AccessKeyId }}{{ $_ := set $made "AWS_ACCESS_KEY_ID" $v.secrets.s3AccessKeyId }}{{ end -}}
{{- if $v.secrets.s3SecretAccessKey }}{{ $_ := set $made "AWS_SECRET_ACCESS_KEY" $v.secrets.s3SecretAccessKey }}{{ end -}}
{{- if $v.elastic.etcd.password }}{{ $_ := set $made "ETCD_PASSWORD" $v.elastic.etcd.password }}{{ end -}}
{{- toJson $made -}}
{{- end -}}

{{- define "security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: {{ .Values.readOnlyRoot }}
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ int64 .Values.runAsUser }}
runAsGroup: {{ int64 .Values.runAsUser }}
fsGroup: {{ int64 .Values.runAsUser }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "claim" -}}
accessModes: [{{ .Values.storage.accessMode }}]
{{- if .Values.storage.storageClassName }}
storageClassName: {{ toJson .Values.storage.storageClassName }}
{{- end }}
resources: {requests: {storage: {{ int64 .Values.storage.sizeGb }}G}}
{{- end -}}

{{- /* A run that finds no etcd fails, and a failure counts. So a pod first waits for ours. */ -}}
{{- define "wait" -}}
import itertools, sys, time, urllib.request
for url in itertools.cycle(sys.argv[1:]):
    try:
        if b"true" in urllib.request.urlopen(url + "/health", timeout=3).read(): break
    except OSError: time.sleep(1)
{{- end -}}

{{- define "node" -}}
metadata:
  labels: {{- include "labels" . | nindent 4 }}
    app.kubernetes.io/component: node
  annotations:
    elastic-nb/config: {{ include "config" . | sha256sum }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add (int64 .Values.graceSeconds) 30 }}
  {{- if eq .Values.backend "job" }}
  subdomain: {{ .Values.deploymentName }}
  {{- end }}
  {{- if .Values.priorityClassName }}
  priorityClassName: {{ toJson .Values.priorityClassName }}
  {{- end }}
  {{- if .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- range .Values.imagePullSecrets }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- if .Values.nodeSelector }}
  nodeSelector: {{- toYaml .Values.nodeSelector | nindent 4 }}
  {{- end }}
  {{- if .Values.tolerations }}
  tolerations:
    {{- range .Values.tolerations }}
    - key: {{ toJson .key }}
      operator: {{ if .operator }}{{ .operator }}{{ else }}Exists{{ end }}
      {{- if .value }}
      value: {{ toJson .value }}
      {{- end }}
      {{- if .effect }}
      effect: {{ .effect }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- if ne .Values.spread "none" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" (eq .Values.spread "hard") }}
      labelSelector: {matchLabels: {{ include "selector" (dict "Values" .Values "component" "node") }} }
  {{- end }}
  securityContext: {{- include "podSecurity" . | nindent 4 }}
  {{- if .Values.etcd.enabled }}
  initContainers:
    - name: etcd-is-up
      image: {{ toJson .Values.deploymentImage }}
      imagePullPolicy: {{ .Values.imagePullPolicy }}
      command: [python3, -c, {{ include "wait" . | toJson }}]
      args: {{ splitList "," (include "endpoints" .) | toJson }}
      resources: {requests: {cpu: 0.1, memory: 128M}, limits: {memory: 512M}}
      securityContext: {{- include "security" . | nindent 8 }}
  {{- end }}
  containers:
    - name: node
      image: {{ required "deploymentImage: name an image with elastic-nb in it" .Values.deploymentImage | toJson }}
      imagePullPolicy: {{ .Values.imagePullPolicy }}
      command: [elastic-nb, train, /etc/elastic-nb/config.yaml]
      args:
        {{- range .Values.overrides }}
        - {{ toJson . }}
        {{- end }}
        - elastic.max_restarts={{ int64 .Values.elastic.maxRestarts }}
        - elastic.grace={{ int64 .Values.graceSeconds }}
        - checkpoint.grace={{ int64 .Values.graceSeconds }}
        - --out=$(RUN)
        - --nnodes={{ int64 .Values.elastic.minNodes }}:{{ int64 .Values.elastic.maxNodes }}
        - --nproc-per-node={{ int64 .Values.elastic.nprocPerNode }}
        - --rdzv-backend=etcd-v3
        - {{ printf "--rdzv-endpoint=%s" (include "endpoints" .) | toJson }}
        - --rdzv-id={{ .Values.deploymentName }}
        - {{ printf "--rdzv-conf=%s" (include "conf" .) | toJson }}
        - --local-addr=$(POD_IP)
      env:
        - name: NODE
          valueFrom: {fieldRef: {fieldPath: {{ ternary "metadata.name" "metadata.annotations['batch.kubernetes.io/job-completion-index']" (eq .Values.backend "volcano") | quote }}}}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - {name: RUN, value: {{ printf "%s/$(NODE)" .Values.diloco.checkpointPath | toJson }}}
        - {name: HOME, value: /tmp}
        - {name: HF_HUB_CACHE, value: {{ toJson .Values.diloco.modelCacheDir }}}
        - {name: HF_DATASETS_CACHE, value: {{ toJson .Values.diloco.datasetCacheDir }}}
        {{- if .Values.secrets.existing }}
        {{- range list "WANDB_API_KEY" "HF_TOKEN" "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" "ETCD_PASSWORD" }}
        - name: {{ . }}
          valueFrom: {secretKeyRef: {name: {{ $.Values.secrets.existing }}, key: {{ . }}, optional: true}}
        {{- end }}
        {{- else }}
        {{- range $key := keys (include "made" . | fromJson) | sortAlpha }}
        - name: {{ $key }}
          valueFrom: {secretKeyRef: {name: {{ $.Values.deploymentName }}, key: {{ $key }}}}
        {{- end }}
        {{- end }}
      resources:
        {{- $more := ternary (printf ", %s: %d" (toJson .Values.gpuResource) (int64 .Values.gpuCount)) "" (gt (int64 .Values.gpuCount) 0) }}
        requests: {cpu: {{ toJson .Values.cpuCores }}, memory: {{ toJson .Values.memoryGb }}G, ephemeral-storage: {{ toJson .Values.ephemeralStorageGb }}G{{ $more }}}
        limits: {memory: {{ toJson .Values.memoryGb }}G, ephemeral-storage: {{ toJson .Values.ephemeralStorageGb }}G{{ $more }}}
      securityContext: {{- include "security" . | nindent 8 }}
      {{- if .Values.probes }}
      startupProbe:
        exec: {command: [sh, -c, 'exec elastic-nb status "$RUN"']}
        periodSeconds: 10
        timeoutSeconds: 20
        failureThreshold: 420
      readinessProbe:
        exec: {command: [sh, -c, 'exec elastic-nb status "$RUN"']}
        periodSeconds: 30
        timeoutSeconds: 20
      livenessProbe:
        exec: {command: [sh, -c, 'exec elastic-nb status "$RUN"']}
        periodSeconds: 60
        timeoutSeconds: 30
        failureThreshold: 10
      {{- end }}
      volumeMounts:
        - {name: config, mountPath: /etc/elastic-nb, readOnly: true}
        {{- if not (and (eq .Values.backend "volcano") .Values.storage.enabled (eq .Values.storage.accessMode "ReadWriteMany")) }}
        - {name: data, mountPath: /data}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
        {{- if gt (float64 .Values.shmGb) 0.0 }}
        - {name: shm, mountPath: /dev/shm}
        {{- end }}
        {{- if and (not .Values.etcd.enabled) .Values.elastic.etcd.tlsSecret }}
        - {name: etcd-tls, mountPath: /etc/etcd-tls, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ .Values.deploymentName }}}
    {{- if not .Values.storage.enabled }}
    - name: data
      emptyDir: {}
    {{- else if ne .Values.storage.accessMode "ReadWriteMany" }}
    - name: data
      ephemeral:
        volumeClaimTemplate:
          spec: {{- include "claim" . | nindent 12 }}
    {{- else if ne .Values.backend "volcano" }}
    - name: data
      persistentVolumeClaim: {claimName: {{ .Values.deploymentName }}-data}
    {{- end }}
    - name: tmp
      emptyDir: {}
    {{- if gt (float64 .Values.shmGb) 0.0 }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ toJson .Values.shmGb }}G}
    {{- end }}
    {{- if and (not .Values.etcd.enabled) .Values.elastic.etcd.tlsSecret }}
    - name: etcd-tls
      secret: {secretName: {{ .Values.elastic.etcd.tlsSecret }}, defaultMode: 288}
    {{- end }}
{{- end -}}

{{- /* A pod that fails is replaced by itself; the others keep running. A drained pod counts nothing, nor one that
    stops with it, by exit code 3. */ -}}
{{- define "jobSpec" -}}
completionMode: Indexed
completions: {{ int64 .Values.nodes }}
parallelism: {{ int64 .Values.nodes }}
backoffLimitPerIndex: {{ int64 .Values.elastic.maxRestarts }}
maxFailedIndexes: {{ sub (int64 .Values.nodes) (int64 .Values.elastic.minNodes) }}
podFailurePolicy:
  rules:
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    - action: Ignore
      onExitCodes: {containerName: node, operator: In, values: [3]}
    - action: FailIndex
      onExitCodes: {containerName: node, operator: In, values: [2]}
successPolicy:
  rules: [{succeededCount: {{ int64 .Values.elastic.minNodes }}}]
template: {{- include "node" . | nindent 2 }}
{{- end -}}
