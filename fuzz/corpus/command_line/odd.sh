A=(1 "2 3" ${B[@]:-x}); A+=(4); B+=5 C=$'\'' D=${E:-${F-"g $H"}}
cat <<-X
	python no.py 'open
	X
f() { case $1 in a) G=`b`;; esac; }
env I=1 sh -c "python -m x.y --a \"$D\" ${A[*]} --b=$((1+(2))) trainer.x=True" &>o <(z) & wait
