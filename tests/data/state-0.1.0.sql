BEGIN TRANSACTION;
CREATE TABLE allocations (
	allocation_id VARCHAR(255) NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	tier VARCHAR(16) NOT NULL, 
	instance_type VARCHAR(64) NOT NULL, 
	zone VARCHAR(64) NOT NULL, 
	count INTEGER NOT NULL CHECK (count > 0), 
	bid_micros BIGINT, 
	launched_at_s BIGINT NOT NULL, 
	instance_ids JSON NOT NULL, 
	instance_ends JSON NOT NULL, 
	ended_at_s BIGINT, 
	end_cause VARCHAR(16), 
	order_id VARCHAR(255) NOT NULL, 
	PRIMARY KEY (allocation_id), 
	CONSTRAINT an_end_has_a_cause CHECK ((ended_at_s IS NULL) = (end_cause IS NULL)), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id), 
	UNIQUE (order_id)
);
INSERT INTO "allocations" VALUES('job-reliable-0','job','reliable','c4.large','us-east-1a',1,NULL,1464912000,'["i-3250f5b4c083cec92"]','{}',NULL,NULL,'job-reliable-0');
INSERT INTO "allocations" VALUES('job-buy-0','job','transient','c4.large','us-east-1a',2,20100,1464912120,'["i-2ada74ac3b2eb46f4","i-40d3e40f15bc52af1"]','{}',NULL,NULL,'job-buy-0');
CREATE TABLE claims (
	name VARCHAR(255) NOT NULL, 
	holder VARCHAR(255) NOT NULL, 
	expires_at_s DOUBLE NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE fences (
	job_id VARCHAR(255) NOT NULL, 
	mark VARCHAR(64), 
	next_mark VARCHAR(64) NOT NULL, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id)
);
INSERT INTO "fences" VALUES('job','1ef802067b4042d8934de3d2f45e0ea2','f289de0e0baa47b1b81d709c04da1464');
CREATE TABLE identity (
	one INTEGER NOT NULL CHECK (one = 1), 
	owner_id VARCHAR(255) NOT NULL, 
	account_id VARCHAR(64), 
	region VARCHAR(64), 
	generation VARCHAR(64) DEFAULT '000000' NOT NULL, 
	PRIMARY KEY (one), 
	CONSTRAINT pinned_together CHECK ((account_id IS NULL) = (region IS NULL))
);
INSERT INTO "identity" VALUES(1,'owner-ea4b047f37c17003','000000000000','us-east-1','000000');
CREATE TABLE intents (
	order_id VARCHAR(255) NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	token VARCHAR(64), 
	params JSON NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	planned_at_s DOUBLE NOT NULL, 
	outcome JSON, 
	settled_at_s DOUBLE, 
	request JSON, 
	doubtful_since_s DOUBLE, 
	answer JSON, 
	PRIMARY KEY (order_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id), 
	UNIQUE (token)
);
INSERT INTO "intents" VALUES('job-reliable-0','job','acquire','fd5f0b707cff8f12f0297702e0f4dcb1cbaa3962','{"market":"c4.large/us-east-1a","count":1,"bid_micros":null}','done',1464912000.0,'{"instances":["i-3250f5b4c083cec92"]}',1464912000.0,'{"token":"fd5f0b707cff8f12f0297702e0f4dcb1cbaa3962","market":"c4.large/us-east-1a","count":1,"bid_micros":null,"user_data":"#!/bin/bash\nset -u\nexport PROTEUS_CLOCK=system\nexport PROTEUS_REGION=us-east-1\nexport PROTEUS_ALLOCATION=job-reliable-0\nPYTHON=python3\nARGUMENTS=(--job job --blob file:///tmp/tmpbqqyn5y0/blobs --tier reliable --threads 2 --poll-s 5)\nIMDS=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}\n\n# A simulated machine names its directory of units, and has its own `shutdown` and `systemctl`.\nUNITS=${PROTEUS_UNIT_DIR:-/etc/systemd/system}\nFILES=${PROTEUS_UNIT_DIR:-/var/lib/proteus}\n\nsay() { echo \"proteus: $*\" >&2; }\n\nis_machine() { [[ -n ${PROTEUS_UNIT_DIR:-} || $IMDS == http://169.254.169.254 ]]; }\n\n# Installs the guard, which ends the machine whatever happens to this script. Its lock says that this script lives.\nguard() {\n  mkdir -p \"$UNITS\" \"$FILES\" && rm -f \"$FILES/proteus-script.done\" && exec 9>\"$FILES/proteus-script.lock\" &&\n    flock 9 && cat >\"$UNITS/proteus-lease.service\" <<''UNIT'' && systemctl daemon-reload 9>&- &&\n[Unit]\nDescription=End this machine when its Proteus lease has ended\nStartLimitIntervalSec=900\nStartLimitBurst=20\nStartLimitAction=poweroff\n\n[Service]\nExecStart=python3 -P -m proteus_spot.infra.nodes.lease_guard --job job --blob file:///tmp/tmpbqqyn5y0/blobs --region us-east-1 --clock system\nRestart=always\nRestartSec=10\nOOMScoreAdjust=-900\n\n[Install]\nWantedBy=multi-user.target\nUNIT\n    systemctl enable --now proteus-lease.service 9>&-\n}\n\n# A machine of the cloud is paid for until it is switched off.\nend_machine() {\n  is_machine || exit \"$1\"\n  touch \"$FILES/proteus-script.done\"\n  shutdown -h now\n  exit \"$1\"\n}\n\nif is_machine && ! guard; then\n  say \"the guard of this machine cannot be installed\"\n  end_machine 1\nfi\n\n# One request to the metadata service (METHOD PATH HEADER), by bash alone: starting an interpreter would take longer.\nmetadata() {\n  local rest=${IMDS#http://} host port=80 path='''' status='''' line wire\n  rest=${rest%/}\n  host=${rest%%/*}\n  [[ $rest == */* ]] && path=/${rest#*/}\n  [[ $host == *:* ]] && port=${host##*:} && host=${host%:*}\n  exec {wire}<>\"/dev/tcp/$host/$port\" || return 1\n  printf ''%s %s HTTP/1.0\\r\\nHost: %s\\r\\n%s\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n'' \\\n    \"$1\" \"$path$2\" \"$host\" \"$3\" >&\"$wire\"\n  read -r -t 5 _ status _ <&\"$wire\"\n  while read -r -t 5 line <&\"$wire\" && [[ -n ${line%$''\\r''} ]]; do :; done\n  read -r -t 5 -d '''' line <&\"$wire\"\n  exec {wire}>&-\n  [[ $status == 200 && -n $line ]] && printf ''%s'' \"$line\"\n}\n\ninstance_id() {\n  local token\n  token=$(metadata PUT /latest/api/token ''X-aws-ec2-metadata-token-ttl-seconds: 60'') || return 1\n  metadata GET /latest/meta-data/instance-id \"X-aws-ec2-metadata-token: $token\"\n}\n\nnode() { exec \"$PYTHON\" -P -m proteus_spot.infra.nodes.main \"${ARGUMENTS[@]}\" --name \"$NAME\" \"$@\"; }\n\n# Runs a command again, ever more slowly, until it ends with 0 or TERM comes.\nsupervise() {\n  local child='''' stopping='''' delay=1 began code tenths\n  trap ''stopping=1; [[ -n $child ]] && kill -TERM \"$child\" 2>/dev/null'' TERM\n  while [[ -z $stopping ]]; do\n    began=$SECONDS\n    \"$@\" &\n    child=$!\n    [[ -n $stopping ]] && kill -TERM \"$child\" 2>/dev/null\n    wait \"$child\"\n    code=$?\n    if [[ -n $stopping ]]; then\n      for ((tenths = 20 * 10; tenths > 0; tenths--)); do\n        kill -0 \"$child\" 2>/dev/null || break\n        sleep 0.1\n      done\n      kill -KILL \"$child\" 2>/dev/null\n      wait \"$child\" 2>/dev/null\n      return 0\n    fi\n    child=''''\n    ((code == 0)) && return 0\n    ((SECONDS - began > 60)) && delay=1\n    say \"$* ended with $code; again in $delay s\"\n    sleep \"$delay\" &\n    child=$!\n    wait \"$child\"\n    child=''''\n    delay=$((delay < 16 ? delay * 2 : 30))\n  done\n}\n\nwait_for() {\n  while kill -0 \"$1\" 2>/dev/null; do wait \"$1\"; done\n}\n\nNAME=''''\nfor ((tries = 30; tries > 0; tries--)); do\n  NAME=$(instance_id) && break\n  sleep 1\ndone\n[[ -n $NAME ]] || { say \"no metadata service at $IMDS\"; exit 1; }\nis_machine && echo \"$NAME\" >\"$FILES/proteus-instance\"\n\npids=()\nstopping=''''\nstop() { ((${#pids[@]})) && kill -TERM \"${pids[@]}\" 2>/dev/null; }\ntrap ''stopping=1; stop'' TERM INT\nsupervise node --controller &\npids+=($!)\nsupervise node &\npids+=($!)\n[[ -n $stopping ]] && stop\n# The first process ends the rest: the controller where there is one.\nwait_for \"${pids[0]}\"\nstop\nfor pid in \"${pids[@]}\"; do wait_for \"$pid\"; done\nend_machine 0\n","tags":{"proteus:owner":"owner-ea4b047f37c17003","proteus:job":"job","proteus:tier":"reliable","proteus:order":"job-reliable-0","proteus:expires":"1465516800","Name":"proteus job reliable"},"parameters":null}',1464912000.0,NULL);
INSERT INTO "intents" VALUES('job-buy-0','job','acquire','3ef6af455840ce390308392f2c3f78a71c8c2731','{"market":"c4.large/us-east-1a","count":2,"bid_micros":20100}','done',1464912120.0,'{"instances":["i-2ada74ac3b2eb46f4","i-40d3e40f15bc52af1"]}',1464912120.0,'{"token":"3ef6af455840ce390308392f2c3f78a71c8c2731","market":"c4.large/us-east-1a","count":2,"bid_micros":20100,"user_data":"#!/bin/bash\nset -u\nexport PROTEUS_CLOCK=system\nexport PROTEUS_REGION=us-east-1\nexport PROTEUS_ALLOCATION=job-buy-0\nPYTHON=python3\nARGUMENTS=(--job job --blob file:///tmp/tmpbqqyn5y0/blobs --tier transient --threads 2 --poll-s 5)\nIMDS=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}\n\n# A simulated machine names its directory of units, and has its own `shutdown` and `systemctl`.\nUNITS=${PROTEUS_UNIT_DIR:-/etc/systemd/system}\nFILES=${PROTEUS_UNIT_DIR:-/var/lib/proteus}\n\nsay() { echo \"proteus: $*\" >&2; }\n\nis_machine() { [[ -n ${PROTEUS_UNIT_DIR:-} || $IMDS == http://169.254.169.254 ]]; }\n\n# Installs the guard, which ends the machine whatever happens to this script. Its lock says that this script lives.\nguard() {\n  mkdir -p \"$UNITS\" \"$FILES\" && rm -f \"$FILES/proteus-script.done\" && exec 9>\"$FILES/proteus-script.lock\" &&\n    flock 9 && cat >\"$UNITS/proteus-lease.service\" <<''UNIT'' && systemctl daemon-reload 9>&- &&\n[Unit]\nDescription=End this machine when its Proteus lease has ended\nStartLimitIntervalSec=900\nStartLimitBurst=20\nStartLimitAction=poweroff\n\n[Service]\nExecStart=python3 -P -m proteus_spot.infra.nodes.lease_guard --job job --blob file:///tmp/tmpbqqyn5y0/blobs --region us-east-1 --clock system\nRestart=always\nRestartSec=10\nOOMScoreAdjust=-900\n\n[Install]\nWantedBy=multi-user.target\nUNIT\n    systemctl enable --now proteus-lease.service 9>&-\n}\n\n# A machine of the cloud is paid for until it is switched off.\nend_machine() {\n  is_machine || exit \"$1\"\n  touch \"$FILES/proteus-script.done\"\n  shutdown -h now\n  exit \"$1\"\n}\n\nif is_machine && ! guard; then\n  say \"the guard of this machine cannot be installed\"\n  end_machine 1\nfi\n\n# One request to the metadata service (METHOD PATH HEADER), by bash alone: starting an interpreter would take longer.\nmetadata() {\n  local rest=${IMDS#http://} host port=80 path='''' status='''' line wire\n  rest=${rest%/}\n  host=${rest%%/*}\n  [[ $rest == */* ]] && path=/${rest#*/}\n  [[ $host == *:* ]] && port=${host##*:} && host=${host%:*}\n  exec {wire}<>\"/dev/tcp/$host/$port\" || return 1\n  printf ''%s %s HTTP/1.0\\r\\nHost: %s\\r\\n%s\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n'' \\\n    \"$1\" \"$path$2\" \"$host\" \"$3\" >&\"$wire\"\n  read -r -t 5 _ status _ <&\"$wire\"\n  while read -r -t 5 line <&\"$wire\" && [[ -n ${line%$''\\r''} ]]; do :; done\n  read -r -t 5 -d '''' line <&\"$wire\"\n  exec {wire}>&-\n  [[ $status == 200 && -n $line ]] && printf ''%s'' \"$line\"\n}\n\ninstance_id() {\n  local token\n  token=$(metadata PUT /latest/api/token ''X-aws-ec2-metadata-token-ttl-seconds: 60'') || return 1\n  metadata GET /latest/meta-data/instance-id \"X-aws-ec2-metadata-token: $token\"\n}\n\nnode() { exec \"$PYTHON\" -P -m proteus_spot.infra.nodes.main \"${ARGUMENTS[@]}\" --name \"$NAME\" \"$@\"; }\n\n# Runs a command again, ever more slowly, until it ends with 0 or TERM comes.\nsupervise() {\n  local child='''' stopping='''' delay=1 began code tenths\n  trap ''stopping=1; [[ -n $child ]] && kill -TERM \"$child\" 2>/dev/null'' TERM\n  while [[ -z $stopping ]]; do\n    began=$SECONDS\n    \"$@\" &\n    child=$!\n    [[ -n $stopping ]] && kill -TERM \"$child\" 2>/dev/null\n    wait \"$child\"\n    code=$?\n    if [[ -n $stopping ]]; then\n      for ((tenths = 20 * 10; tenths > 0; tenths--)); do\n        kill -0 \"$child\" 2>/dev/null || break\n        sleep 0.1\n      done\n      kill -KILL \"$child\" 2>/dev/null\n      wait \"$child\" 2>/dev/null\n      return 0\n    fi\n    child=''''\n    ((code == 0)) && return 0\n    ((SECONDS - began > 60)) && delay=1\n    say \"$* ended with $code; again in $delay s\"\n    sleep \"$delay\" &\n    child=$!\n    wait \"$child\"\n    child=''''\n    delay=$((delay < 16 ? delay * 2 : 30))\n  done\n}\n\nwait_for() {\n  while kill -0 \"$1\" 2>/dev/null; do wait \"$1\"; done\n}\n\nNAME=''''\nfor ((tries = 30; tries > 0; tries--)); do\n  NAME=$(instance_id) && break\n  sleep 1\ndone\n[[ -n $NAME ]] || { say \"no metadata service at $IMDS\"; exit 1; }\nis_machine && echo \"$NAME\" >\"$FILES/proteus-instance\"\n\npids=()\nstopping=''''\nstop() { ((${#pids[@]})) && kill -TERM \"${pids[@]}\" 2>/dev/null; }\ntrap ''stopping=1; stop'' TERM INT\nsupervise node &\npids+=($!)\n[[ -n $stopping ]] && stop\n# The first process ends the rest: the controller where there is one.\nwait_for \"${pids[0]}\"\nstop\nfor pid in \"${pids[@]}\"; do wait_for \"$pid\"; done\nend_machine 0\n","tags":{"proteus:owner":"owner-ea4b047f37c17003","proteus:job":"job","proteus:tier":"transient","proteus:order":"job-buy-0","proteus:expires":"1465516920","Name":"proteus job transient"},"parameters":null}',1464912120.0,NULL);
CREATE TABLE jobs (
	job_id VARCHAR(255) NOT NULL, 
	spec JSON NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	created_at_s DOUBLE NOT NULL, 
	ended_at_s DOUBLE, 
	controller_address TEXT, 
	result JSON, 
	failure TEXT, 
	stop_why TEXT, 
	stop_by VARCHAR(64), 
	stop_at_s DOUBLE, 
	stop_now BOOLEAN, 
	kind VARCHAR(8) DEFAULT 'job' NOT NULL, 
	PRIMARY KEY (job_id)
);
INSERT INTO "jobs" VALUES('job','{"job_id":"job","transient":{"markets":["c4.large/us-east-1a"],"max_vcpus":4,"policy":"proteus","billing":"hourly-refund","reprice":null,"flat_price":null,"evictions":"","allocation_vcpus":4,"ceiling_on_demand":true,"scaling_efficiency":1.0,"resize_overhead_s":20.0,"eviction_overhead_s":60.0},"training":{"app":"mlr","code":"","app_params":{},"data":"digits","clocks":3,"passes":null,"hours":null,"until":"","checkpoint_minutes":10.0,"evaluate_every":null,"seed":0,"max_partitions_per_node":null,"label":"","empty":"refuse","partitions":16,"shards":4,"staleness":0,"stage":null,"stage_2_above":1.0,"stage_3_above":15.0,"servers":null,"scale_in":null,"nan":"fail"},"reliable":{"count":1,"instance_type":"c4.large","zone":"us-east-1a"},"budget_usd":null,"deadline":null}','starting',1464912000.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'job');
CREATE TABLE journal (
	job_id VARCHAR(255) NOT NULL, 
	seq INTEGER NOT NULL, 
	at_s DOUBLE NOT NULL, 
	known_at_s DOUBLE NOT NULL, 
	direction VARCHAR(8) NOT NULL CHECK (direction IN ('event', 'order')), 
	record JSON NOT NULL, 
	PRIMARY KEY (job_id, seq), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id)
);
INSERT INTO "journal" VALUES('job',0,1464912000.0,1464912000.0,'event','{"schema":1,"kind":"JobOpened","at_s":1464912000,"job_id":"job","job":{"scaling_efficiency":1.0,"resize_overhead_s":20.0,"eviction_overhead_s":60.0,"allocation_vcpus":4,"max_spot_vcpus":4,"renewal_lead_s":240,"cooldown_s":600,"ceiling_on_demand":true,"reliable_works":true,"billing":"hourly-refund","flat_micros":0},"policy":"proteus","types":{"c4.large":{"name":"c4.large","vcpu":2,"memory_gib":3.75,"on_demand_micros":105000}},"markets":["c4.large/us-east-1a"],"evictions":{"deltas_micros":[100,141,200,282,398,563,795,1124,1587,2243,3169,4477,6325,8935,12624,17836,25198,35601,50297,71061,100396,141841,200396,283122,400000],"markets":{"c4.large/us-east-1a":{"beta":[0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],"median_tte_s":[3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0]}},"bids_decide":true},"foresight":null}');
INSERT INTO "journal" VALUES('job',1,1464912000.0,1464912000.0,'event','{"schema":1,"kind":"AllocationGranted","at_s":1464912000,"order_id":"job-reliable-0","allocation":{"allocation_id":"job-reliable-0","market":"c4.large/us-east-1a","count":1,"launched_at_s":1464912000,"tier":"reliable","bid_micros":null},"instance_ids":["i-3250f5b4c083cec92"]}');
INSERT INTO "journal" VALUES('job',2,1464912120.0,1464912120.0,'event','{"schema":1,"kind":"TickDue","at_s":1464912120,"prices":{"c4.large/us-east-1a":20000,"m4.large/us-east-1b":30000},"buy":true,"left_out":{},"signals":{},"spending":null,"time_left":null,"crossing_usd_per_vcpu_h":0.0,"generation":""}');
INSERT INTO "journal" VALUES('job',3,1464912120.0,1464912120.0,'order','{"schema":1,"kind":"Acquire","order_id":"job-buy-0","market":"c4.large/us-east-1a","count":2,"bid_micros":20100,"decision":{"verdict":"acquire","reason":"2 x c4.large/us-east-1a at $0.0200, bid $0.0201 (eviction within the hour 0%), brings work from $0.05250/vCPU-h to $0.02398/vCPU-h","cost_per_work":0.0525,"candidates":[{"market":"c4.large/us-east-1a","count":2,"price_micros":20000,"delta_micros":100,"eviction_prob":0.0,"cost_usd":0.1415,"work":5.9,"cost_per_work":0.023983050847457624,"why_not":""}]}}');
INSERT INTO "journal" VALUES('job',4,1464912120.0,1464912120.0,'event','{"schema":1,"kind":"AllocationGranted","at_s":1464912120,"order_id":"job-buy-0","allocation":{"allocation_id":"job-buy-0","market":"c4.large/us-east-1a","count":2,"launched_at_s":1464912120,"tier":"transient","bid_micros":20100},"instance_ids":["i-2ada74ac3b2eb46f4","i-40d3e40f15bc52af1"]}');
INSERT INTO "journal" VALUES('job',5,1464912240.0,1464912240.0,'event','{"schema":1,"kind":"TickDue","at_s":1464912240,"prices":{"c4.large/us-east-1a":20000,"m4.large/us-east-1b":30000},"buy":true,"left_out":{},"signals":{},"spending":null,"time_left":null,"crossing_usd_per_vcpu_h":0.0,"generation":""}');
INSERT INTO "journal" VALUES('job',6,1464912240.0,1464912240.0,'order','{"schema":1,"kind":"Wait","decision":{"verdict":"wait","reason":"nothing can be bought: all of 4 spot vCPUs are held","cost_per_work":0.02383720930232558,"candidates":[]}}');
CREATE TABLE ledger (
	entry_id VARCHAR(255) NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	allocation_id VARCHAR(255) NOT NULL, 
	hour_index INTEGER NOT NULL, 
	kind VARCHAR(8) NOT NULL, 
	at_s BIGINT NOT NULL, 
	price_micros BIGINT NOT NULL, 
	amount_micros BIGINT NOT NULL, 
	note TEXT NOT NULL, 
	PRIMARY KEY (entry_id), 
	CONSTRAINT signs_of_money CHECK ((kind = 'charge' AND amount_micros >= 0) OR (kind = 'refund' AND amount_micros <= 0)), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id), 
	FOREIGN KEY(allocation_id) REFERENCES allocations (allocation_id)
);
INSERT INTO "ledger" VALUES('job-reliable-0/0/charge','job','job-reliable-0',0,'charge',1464912000,105000,105000,'on demand');
INSERT INTO "ledger" VALUES('job-buy-0/0/charge','job','job-buy-0',0,'charge',1464912120,20000,40000,'spot');
CREATE TABLE observations (
	observation_id INTEGER NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	at_s DOUBLE NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	payload JSON NOT NULL, 
	PRIMARY KEY (observation_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id)
);
INSERT INTO "observations" VALUES(1,'job',1464912120.0,'booked','{}');
CREATE TABLE schema_revision (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT schema_revision_pkc PRIMARY KEY (version_num)
);
INSERT INTO "schema_revision" VALUES('0001');
CREATE TABLE snapshots (
	job_id VARCHAR(255) NOT NULL, 
	seq INTEGER NOT NULL, 
	program VARCHAR(64) NOT NULL, 
	opened_seq INTEGER NOT NULL, 
	engine JSON NOT NULL, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id)
);
CREATE INDEX ix_intents_job_id ON intents (job_id);
CREATE INDEX ix_allocations_job_id ON allocations (job_id);
CREATE INDEX ix_observations_newest ON observations (job_id, kind, observation_id);
CREATE INDEX ix_ledger_job_id ON ledger (job_id);
COMMIT;
